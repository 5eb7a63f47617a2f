// The kinds of settings, which define how a value is read, written and checked.
//
// Every kind has the same three functions. read() sets the member from text and returns whether the
// text is a value within the range; write() returns text that read() accepts; range() describes
// what read() accepts.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include <tutti/config.hpp>

#include "common/text.h"

namespace tutti {

/// A text of a certain form. `parse` returns the text in the form in which it is kept, or none if
/// the text has another form.
struct TextKnob {
  std::string Config::*member;
  std::optional<std::string> (*parse)(std::string_view text);
  std::string_view form;
  /// Whether write() hides the value; it then returns another text that read() accepts.
  bool secret = false;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const;
  std::string range() const { return std::string(form); }
};

/// Each of these functions reads the text of one kind of setting and returns it in its normal form,
/// or none where the text is not of that kind. This one accepts any text that is not empty.
std::optional<std::string> parse_any(std::string_view text);
/// These accept one name, or several separated by commas, of lower-case letters, digits and
/// underscores.
std::optional<std::string> parse_name(std::string_view text);
std::optional<std::string> parse_names(std::string_view text);
/// Accepts "none", "auto", or a list of the CPUs of each rank.
std::optional<std::string> parse_binding(std::string_view text);
/// Accepts "none", "rank", or the number of a GPU.
std::optional<std::string> parse_device(std::string_view text);
/// Accepts "none", "USR1" or "USR2".
std::optional<std::string> parse_signal(std::string_view text);
/// Accepts "auto", or the address of a store.
std::optional<std::string> parse_store(std::string_view text);
/// Accepts prefixes of interface names with commas between them; a leading ^ excludes all of them.
std::optional<std::string> parse_interfaces(std::string_view text);
/// Accepts a secret of at least kLeastSecretBytes.
std::optional<std::string> parse_secret(std::string_view text);

/// One of a few values, each of which has one or more names; a value is written by the first of its
/// names.
template <typename Value>
struct ChoiceKnob {
  struct Choice {
    std::string_view name;
    Value value;
  };
  Value Config::*member;
  std::span<const Choice> choices;
  std::string_view names;

  bool read(std::string_view text, Config& config) const {
    for (const Choice& choice : choices) {
      if (choice.name != text) continue;
      config.*member = choice.value;
      return true;
    }
    return false;
  }
  std::string write(const Config& config) const {
    for (const Choice& choice : choices)
      if (choice.value == config.*member) return std::string(choice.name);
    return "not one of them";
  }
  std::string range() const { return std::string(names); }
};

/// A number within a range: a count, or a time in milliseconds.
template <typename Value>
struct NumberKnob {
  Value Config::*member;
  Value least, most;

  bool read(std::string_view text, Config& config) const {
    const auto count = parse_number<std::int64_t>(text);
    if (!count || *count < number(least) || *count > number(most)) return false;
    config.*member = static_cast<Value>(*count);
    return true;
  }
  std::string write(const Config& config) const { return std::to_string(number(config.*member)); }
  std::string range() const {
    return std::to_string(number(least)) + ".." + std::to_string(number(most)) + kUnit;
  }

 private:
  static constexpr bool kTime = !std::is_integral_v<Value>;
  static constexpr const char* kUnit = kTime ? " milliseconds" : "";
  // The quotient of two times is a plain number.
  static constexpr std::int64_t number(Value value) { return value / Value{1}; }
};
using TimeKnob = NumberKnob<std::chrono::milliseconds>;
using CountKnob = NumberKnob<int>;

/// A size, with or without K, M or G (powers of 1024); 0 stands for tutti's own choice.
struct BytesKnob {
  std::size_t Config::*member;
  std::size_t least, most, multiple;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const;
  std::string range() const;
};

using KnobKind = std::variant<TextKnob, ChoiceKnob<LogLevel>, ChoiceKnob<Accumulate>,
                              ChoiceKnob<bool>, TimeKnob, BytesKnob, CountKnob>;

/// Returns 65536 as "64K": it uses the largest of K, M and G that divides the size.
std::string write_bytes(std::size_t bytes);

}  // namespace tutti
