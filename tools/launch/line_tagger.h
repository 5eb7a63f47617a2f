// Cuts what a rank writes into whole lines that begin with its tag.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tutti::tools {

/// Turns a stream of bytes into lines `[2] text`. Bytes are kept as they are, zeros too, with two
/// exceptions that keep many ranks readable on one terminal:
/// - A line longer than kLineBytesMax is broken; its continuations begin with `[2]+`.
/// - Text that a carriage return overwrites (a progress bar) is dropped, as a terminal would; what
///   stands there is shown when the line ends or show_progress() is called.
/// A line that is merely unfinished is held until it ends: programs that write in blocks cut lines
/// at any place.
///
/// Not thread-safe.
class LineTagger {
 public:
  static constexpr std::size_t kLineBytesMax = 64 * 1024;

  explicit LineTagger(int rank);

  /// Appends to `out` the lines that `bytes` completes.
  void feed(std::string_view bytes, std::string& out);
  /// Whether a progress bar has changed since it was last shown.
  bool holds_progress() const noexcept;
  void show_progress(std::string& out);
  /// The stream has ended: what is held becomes a line.
  void finish(std::string& out);

 private:
  void append(std::string_view text, std::string& out);
  void emit(std::string_view text, std::string& out);
  void begin_line();
  std::string_view visible() const noexcept;

  std::string tag_;
  std::string line_;        // not yet shown; may end in carriage returns
  bool progress_ = false;   // carriage returns were seen in this line
  bool shown_ = false;      // a part of this line was shown before line_
  bool continued_ = false;  // and line_ goes on where that ended
};

}  // namespace tutti::tools
