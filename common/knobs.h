// The kinds of knob: how a value of each kind is read, written and bounded.
//
// Every kind has the same three functions. read() sets the member from text and says whether the
// text is a value within the range; write() gives text that read() takes; range() says in words
// what read() takes.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <variant>

#include <tutti/config.hpp>

namespace tutti {

/// One name, or several with commas between them: lower-case letters, digits and underscores.
struct NamesKnob {
  std::string Config::*member;
  bool several;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const { return config.*member; }
  std::string range() const;
};

struct PathKnob {
  std::string Config::*member;
  std::string_view allowed = "a path";

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const { return config.*member; }
  std::string range() const { return std::string(allowed); }
};

struct TimeKnob {
  std::chrono::milliseconds Config::*member;
  std::chrono::milliseconds least, most;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const;
  std::string range() const;
};

/// A size, with or without K, M or G (powers of 1024); 0 leaves it to tutti.
struct BytesKnob {
  std::size_t Config::*member;
  std::size_t least, most, multiple;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const;
  std::string range() const;
};

struct CountKnob {
  int Config::*member;
  int least, most;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const;
  std::string range() const;
};

struct LevelKnob {
  LogLevel Config::*member;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const;
  std::string range() const { return "error, warn, info or debug"; }
};

struct AccumulateKnob {
  Accumulate Config::*member;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const;
  std::string range() const { return "step, f32 or reproducible"; }
};

/// What binds ranks: "none", "auto", or the cpus of each rank.
struct BindKnob {
  std::string Config::*member;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const { return config.*member; }
  std::string range() const { return "none, auto, or cpus of each rank, as 0-3,4-7"; }
};

struct StoreKnob {
  std::string Config::*member;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const { return config.*member; }
  std::string range() const { return "auto, tcp://host:port or file:///path"; }
};

/// Prefixes of interfaces' names with commas between them, all of them excluded after a ^.
struct InterfacesKnob {
  std::string Config::*member;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const { return config.*member; }
  std::string range() const { return "auto, or prefixes as eth0,ib or ^docker,lo"; }
};

/// write() hides the value, in text that read() takes.
struct SecretKnob {
  std::string Config::*member;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const;
  std::string range() const;
};

struct SwitchKnob {
  bool Config::*member;

  bool read(std::string_view text, Config& config) const;
  std::string write(const Config& config) const { return config.*member ? "yes" : "no"; }
  std::string range() const { return "yes or no (1 or 0)"; }
};

using KnobKind =
    std::variant<NamesKnob, PathKnob, TimeKnob, BytesKnob, CountKnob, LevelKnob, AccumulateKnob,
                 BindKnob, StoreKnob, InterfacesKnob, SecretKnob, SwitchKnob>;

/// 65536 as "64K": the largest of K, M and G that divides it.
std::string write_bytes(std::size_t bytes);

}  // namespace tutti
