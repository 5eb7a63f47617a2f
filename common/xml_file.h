// Reading XML that comes from outside, with errors that name the file and the line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <pugixml.hpp>

namespace tutti {

/// Holds a parsed XML document. It is immutable after construction.
class XmlFile {
 public:
  static constexpr std::size_t kMostBytes = 64u << 20;

  /// `name` is the file's name in errors. Throws `usage` with the line where `text` is not
  /// well-formed, is longer than kMostBytes, or has another root than one element `root`.
  XmlFile(std::string name, std::string text, const char* root);

  pugi::xml_node root() const { return document_.document_element(); }

  /// Throws `usage` with the file, the line of `at`, and the reason.
  [[noreturn]] void fail(pugi::xml_node at, const std::string& why) const;
  /// Returns the attribute as a number in a range; throws as fail() does for anything else. A
  /// missing attribute is `missing`, and an error where that is none.
  std::int64_t number(pugi::xml_node at, const char* attribute, std::int64_t least,
                      std::int64_t most, std::optional<std::int64_t> missing = {}) const;
  /// Returns the attribute's text; a missing one fails.
  std::string_view text(pugi::xml_node at, const char* attribute) const;

 private:
  [[noreturn]] void fail_at(std::ptrdiff_t offset, const std::string& why) const;

  std::string name_;
  std::string text_;
  pugi::xml_document document_;
};

}  // namespace tutti
