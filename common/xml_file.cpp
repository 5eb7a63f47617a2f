#include "common/xml_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include <tutti/error.hpp>

#include "common/text.h"

namespace tutti {

XmlFile::XmlFile(std::string name, std::string text, const char* root)
    : name_(std::move(name)), text_(std::move(text)) {
  if (text_.size() > kMostBytes)
    fail_at(0, fmt::format("the file has {} bytes; at most {} are read", text_.size(), kMostBytes));
  const pugi::xml_parse_result result =
      document_.load_buffer(text_.data(), text_.size(), pugi::parse_default, pugi::encoding_utf8);
  if (!result) fail_at(result.offset, fmt::format("this is no XML: {}", result.description()));
  if (std::string_view(this->root().name()) != root)
    fail(this->root(),
         fmt::format("the outermost element is <{}>, expected <{}>", this->root().name(), root));
}

void XmlFile::fail_at(std::ptrdiff_t offset, const std::string& why) const {
  const auto end = text_.begin() +
                   std::clamp<std::ptrdiff_t>(offset, 0, static_cast<std::ptrdiff_t>(text_.size()));
  throw Error(ErrorKind::usage,
              fmt::format("{}, line {}: {}", name_, 1 + std::count(text_.begin(), end, '\n'), why));
}

void XmlFile::fail(pugi::xml_node at, const std::string& why) const {
  fail_at(at.offset_debug(), why);
}

std::int64_t XmlFile::number(pugi::xml_node at, const char* attribute, std::int64_t least,
                             std::int64_t most, std::optional<std::int64_t> missing) const {
  if (missing && !at.attribute(attribute)) return *missing;
  const std::string_view text = this->text(at, attribute);
  const auto value = parse_number<std::int64_t>(text);
  if (!value || *value < least || *value > most)
    fail(at, fmt::format("{}={} of <{}> is no whole number from {} to {}", attribute, shown(text),
                         at.name(), least, most));
  return *value;
}

std::string_view XmlFile::text(pugi::xml_node at, const char* attribute) const {
  const pugi::xml_attribute found = at.attribute(attribute);
  if (!found) fail(at, fmt::format("<{}> has no attribute '{}'", at.name(), attribute));
  return found.value();
}

}  // namespace tutti
