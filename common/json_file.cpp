#include "common/json_file.h"

#include <fmt/format.h>

#include <algorithm>

#include <tutti/error.hpp>

#include "common/text.h"

namespace tutti {
namespace {

constexpr int kMostNested = 64;

}  // namespace

void JsonValue::fail(const std::string& why) const {
  throw Error(ErrorKind::usage, fmt::format("{}: {}", place_, why));
}

bool JsonValue::has(const char* key) const { return value_->is_object() && value_->contains(key); }

JsonValue JsonValue::at(const char* key) const {
  if (!value_->is_object()) fail("this is no object");
  const auto found = value_->find(key);
  if (found == value_->end()) fail(fmt::format("the member '{}' is missing", key));
  return {*found, fmt::format("{}/{}", place_, key)};
}

std::size_t JsonValue::size(std::size_t most) const {
  if (!value_->is_array()) fail("this is no array");
  if (value_->size() > most)
    fail(fmt::format("there are {} elements; at most {} are read", value_->size(), most));
  return value_->size();
}

JsonValue JsonValue::element(std::size_t index) const {
  return {value_->at(index), fmt::format("{}/{}", place_, index)};
}

std::int64_t JsonValue::number(std::int64_t least, std::int64_t most) const {
  // A number above 2^63 is kept unsigned, and would look negative if it were read as signed.
  const bool fits = value_->is_number_integer() &&
                    (!value_->is_number_unsigned() || value_->get<std::uint64_t>() <= INT64_MAX);
  if (!fits || value_->get<std::int64_t>() < least || value_->get<std::int64_t>() > most)
    fail(fmt::format("this is no whole number from {} to {}", least, most));
  return value_->get<std::int64_t>();
}

double JsonValue::real(double least, double most) const {
  if (!value_->is_number() || !(value_->get<double>() >= least && value_->get<double>() <= most))
    fail(fmt::format("this is no number from {} to {}", least, most));
  return value_->get<double>();
}

bool JsonValue::boolean() const {
  if (!value_->is_boolean()) fail("this is neither true nor false");
  return value_->get<bool>();
}

std::string JsonValue::text(std::size_t most_bytes) const {
  if (!value_->is_string()) fail("this is no text");
  const auto& text = value_->get_ref<const std::string&>();
  if (text.size() > most_bytes) fail(fmt::format("the text has more than {} bytes", most_bytes));
  return text;
}

std::int64_t JsonValue::number(const char* key, std::int64_t least, std::int64_t most,
                               std::optional<std::int64_t> missing) const {
  return missing && !has(key) ? *missing : at(key).number(least, most);
}

double JsonValue::real(const char* key, double least, double most,
                       std::optional<double> missing) const {
  return missing && !has(key) ? *missing : at(key).real(least, most);
}

void JsonValue::allow_only(std::initializer_list<std::string_view> keys) const {
  if (!value_->is_object()) fail("this is no object");
  for (const auto& [key, ignored] : value_->items())
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      std::string known;
      for (const std::string_view name : keys) known += fmt::format(" {}", name);
      fail(fmt::format("{} is no member that is known here; there are:{}", shown(key), known));
    }
}

nlohmann::json parse_json(const std::string& name, std::string_view text) {
  const auto fail = [&](const std::string& why) {
    throw Error(ErrorKind::usage, fmt::format("{}: {}", name, why));
  };
  if (text.size() > kMostJsonBytes)
    fail(fmt::format("the file has {} bytes; at most {} are read", text.size(), kMostJsonBytes));
  const auto bounded = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > kMostNested) fail(fmt::format("values are nested more than {} deep", kMostNested));
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), bounded);
  } catch (const nlohmann::json::exception& error) {
    // The text is "[json.exception...] parse error at line 3, column 7: ...".
    const std::string_view why = error.what();
    const std::size_t end = why.find("] ");
    fail(std::string(end == std::string_view::npos ? why : why.substr(end + 2)));
  }
  return {};
}

}  // namespace tutti
