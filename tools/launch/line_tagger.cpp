#include "launch/line_tagger.h"

#include <fmt/format.h>

#include <cassert>

namespace tutti::tools {

LineTagger::LineTagger(int rank) : tag_(fmt::format("[{}]", rank)) { assert(rank >= 0); }

void LineTagger::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    append(bytes.substr(0, end), out);
    if (end == std::string_view::npos) return;
    bytes.remove_prefix(end + 1);
    if (!shown_ || !visible().empty()) emit(line_, out);
    begin_line();
    progress_ = false;
  }
}

void LineTagger::append(std::string_view text, std::string& out) {
  const std::size_t last = text.find_last_not_of('\r');
  if (last != std::string_view::npos) {
    const std::size_t overwritten = text.rfind('\r', last);
    if (overwritten != std::string_view::npos || line_.ends_with('\r')) {
      begin_line();
      progress_ = true;
    }
    if (overwritten != std::string_view::npos) text.remove_prefix(overwritten + 1);
  }
  if (text.ends_with('\r')) progress_ = true;
  while (line_.size() + text.size() > kLineBytesMax) {
    const std::size_t fits = kLineBytesMax - line_.size();
    line_ += text.substr(0, fits);
    text.remove_prefix(fits);
    emit(line_, out);
    line_.clear();
    shown_ = continued_ = true;
  }
  line_ += text;
  assert(line_.size() <= kLineBytesMax);
}

void LineTagger::emit(std::string_view text, std::string& out) {
  out += tag_;
  out += continued_ ? '+' : ' ';
  out += text;
  out += '\n';
}

void LineTagger::begin_line() {
  line_.clear();
  shown_ = continued_ = false;
}

std::string_view LineTagger::visible() const noexcept {
  return std::string_view(line_).substr(0, line_.find_last_not_of('\r') + 1);
}

bool LineTagger::holds_progress() const noexcept { return progress_ && !visible().empty(); }

void LineTagger::show_progress(std::string& out) {
  if (!holds_progress()) return;
  const std::string_view text = visible();
  emit(text, out);
  shown_ = true;
  continued_ = text.size() == line_.size();  // otherwise the next text overwrites this one
  line_.erase(0, text.size());
}

void LineTagger::finish(std::string& out) {
  if (!visible().empty()) emit(visible(), out);
  begin_line();
  progress_ = false;
}

}  // namespace tutti::tools
