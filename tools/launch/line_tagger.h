// Splits the output of a rank into whole lines, which begin with the rank's tag.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::tools {

/// Turns a stream of bytes into lines `[2] text`. Bytes are kept as they are, including zeros, with
/// two exceptions that keep the output of many ranks readable on one terminal:
/// - A line longer than kLineBytesMax is broken; its continuations begin with `[2]+`.
/// - Text that a carriage return overwrites (a progress bar) is dropped, as on a terminal; the
///   visible text is shown when the line ends or show_progress() is called.
/// An unfinished line is held until it ends, since programs that write in blocks may cut lines
/// anywhere.
///
/// Not thread-safe.
class LineTagger {
 public:
  static constexpr std::size_t kLineBytesMax = 64 * 1024;

  explicit LineTagger(int rank);

  /// Appends to `out` the lines that end within `bytes`.
  void feed(std::string_view bytes, std::string& out);
  /// Whether a progress bar has changed since it was last shown.
  bool holds_progress() const noexcept;
  void show_progress(std::string& out);
  /// Call it at the end of the stream: it appends the text that is held as a line.
  void finish(std::string& out);

 private:
  void append(std::string_view text, std::string& out);
  void emit(std::string_view text, std::string& out);
  void begin_line();
  std::string_view visible() const noexcept;

  std::string tag_;
  std::string line_;        // text that was not shown yet; may end in carriage returns
  bool progress_ = false;   // carriage returns were seen in this line
  bool shown_ = false;      // a part of this line was shown before line_
  bool continued_ = false;  // line_ continues the part that was shown
};

}  // namespace tutti::tools
