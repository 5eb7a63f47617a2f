// Reading JSON that comes from outside, with errors that name the file and the place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace tutti {

/// A value in a parsed JSON document, which knows its place there. Refers to the document.
class JsonValue {
 public:
  /// `place` is the file's name in errors, followed by the way to the value.
  JsonValue(const nlohmann::json& value, std::string place)
      : value_(&value), place_(std::move(place)) {}

  const nlohmann::json& json() const { return *value_; }
  /// Throws `usage` with the file, the place and the reason.
  [[noreturn]] void fail(const std::string& why) const;

  bool is_array() const { return value_->is_array(); }
  bool is_string() const { return value_->is_string(); }

  bool has(const char* key) const;
  /// Returns the member of an object; throws if it is missing or this is no object.
  JsonValue at(const char* key) const;
  /// Returns the number of elements of an array; throws if there are more than `most`.
  std::size_t size(std::size_t most) const;
  JsonValue element(std::size_t index) const;

  /// Each throws if the value is of another type or out of the range.
  std::int64_t number(std::int64_t least, std::int64_t most) const;
  double real(double least, double most) const;
  bool boolean() const;
  std::string text(std::size_t most_bytes = 4096) const;

  /// Returns the member's number, or `missing` if there is no such member.
  std::int64_t number(const char* key, std::int64_t least, std::int64_t most,
                      std::optional<std::int64_t> missing = {}) const;
  double real(const char* key, double least, double most, std::optional<double> missing = {}) const;
  /// Throws if the object has a member with another name, as after a typing mistake.
  void allow_only(std::initializer_list<std::string_view> keys) const;

 private:
  const nlohmann::json* value_;
  std::string place_;
};

inline constexpr std::size_t kMostJsonBytes = 64u << 20;

/// Parses a document of at most kMostJsonBytes, whose values are nested at most 64 deep. Throws
/// `usage` with `name` and the line and column for anything else.
nlohmann::json parse_json(const std::string& name, std::string_view text);

}  // namespace tutti
