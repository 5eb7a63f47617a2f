#include "idx.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <memory>

#include <tutti/error.hpp>

namespace digits {
namespace {

using tutti::Error;
using tutti::ErrorKind;

// An IDX file has two zero bytes, the type of element and the number of dimensions; then each
// dimension as a big-endian 32-bit number; then the elements.
constexpr std::uint32_t kBytesInThreeDimensions = 0x00000803;
constexpr std::uint32_t kBytesInOneDimension = 0x00000801;

class GzipFile {
 public:
  explicit GzipFile(const std::string& path) : path_(path), file_(gzopen(path.c_str(), "rb")) {
    if (!file_)
      throw Error(ErrorKind::usage,
                  fmt::format("cannot open '{}': {}", path, std::strerror(errno)));
  }

  /// Reads up to `size` bytes. It reads fewer only at the end of a complete file.
  std::size_t read_up_to(std::uint8_t* to, std::size_t size) {
    std::size_t got = 0;
    while (got < size) {
      const std::size_t most = std::min<std::size_t>(size - got, 1u << 20);
      const int bytes = gzread(file_.get(), to + got, static_cast<unsigned>(most));
      check();
      if (bytes <= 0) break;
      got += static_cast<std::size_t>(bytes);
    }
    return got;
  }

  std::uint32_t read_number(const char* what) {
    std::array<std::uint8_t, 4> bytes{};
    if (read_up_to(bytes.data(), 4) < 4)
      throw Error(ErrorKind::corrupt,
                  fmt::format("'{}' is cut short: it ends before {}", path_, what));
    return static_cast<std::uint32_t>(bytes[0]) << 24 | static_cast<std::uint32_t>(bytes[1]) << 16 |
           static_cast<std::uint32_t>(bytes[2]) << 8 | static_cast<std::uint32_t>(bytes[3]);
  }

  /// Reads exactly `size` bytes, after which the file must end. Memory grows with the data that is
  /// there, not with the size that the file's header claims.
  std::vector<std::uint8_t> read_rest(std::size_t size) {
    constexpr std::size_t kAtOnce = 1u << 20;
    std::vector<std::uint8_t> bytes;
    while (bytes.size() < size) {
      const std::size_t before = bytes.size();
      bytes.resize(before + std::min(kAtOnce, size - before));
      const std::size_t got = read_up_to(bytes.data() + before, bytes.size() - before);
      if (before + got < bytes.size())
        throw Error(ErrorKind::corrupt,
                    fmt::format("'{}' is cut short: its header announces {} B, and {} B follow",
                                path_, size, before + got));
    }
    std::uint8_t beyond = 0;
    if (read_up_to(&beyond, 1) != 0)
      throw Error(
          ErrorKind::corrupt,
          fmt::format("'{}' goes on after the {} B that its header announces", path_, size));
    return bytes;
  }

  const std::string& path() const { return path_; }

 private:
  void check() {
    if (gzdirect(file_.get()))
      throw Error(ErrorKind::usage,
                  fmt::format("'{}' is not a gzip file: compress it with gzip", path_));
    int code = Z_OK;
    const char* const message = gzerror(file_.get(), &code);
    if (code == Z_BUF_ERROR)
      throw Error(ErrorKind::corrupt,
                  fmt::format("'{}' is cut short: the gzip stream has no end", path_));
    if (code != Z_OK && code != Z_STREAM_END)
      throw Error(ErrorKind::corrupt, fmt::format("'{}' is damaged: {}", path_, message));
  }

  struct Close {
    void operator()(gzFile file) const { gzclose_r(file); }
  };
  std::string path_;
  std::unique_ptr<gzFile_s, Close> file_;
};

void require_magic(GzipFile& file, std::uint32_t expected, const char* what) {
  const std::uint32_t found = file.read_number("its first four bytes");
  if (found == expected) return;
  const bool swapped = found == kBytesInThreeDimensions || found == kBytesInOneDimension;
  throw Error(ErrorKind::usage,
              fmt::format("'{}' is not an IDX file of {}: it begins with 0x{:08x}, expected "
                          "0x{:08x}{}",
                          file.path(), what, found, expected,
                          swapped ? ". Images and labels seem to be exchanged" : ""));
}

}  // namespace

std::size_t Dataset::classes() const {
  return labels.empty() ? 0 : *std::max_element(labels.begin(), labels.end()) + 1u;
}

Dataset load(const std::string& images_path, const std::string& labels_path) {
  Dataset data;
  GzipFile images(images_path);
  require_magic(images, kBytesInThreeDimensions, "images");
  const std::size_t count = images.read_number("the number of images");
  data.rows = images.read_number("the number of rows");
  data.columns = images.read_number("the number of columns");
  constexpr std::size_t kMostBytes = std::numeric_limits<std::size_t>::max() / 2;
  if (count == 0 || data.rows == 0 || data.columns == 0 ||
      data.rows > kMostBytes / data.columns / count)
    throw Error(ErrorKind::corrupt,
                fmt::format("'{}' announces {} images of {} x {} pixels: that cannot be",
                            images_path, count, data.rows, data.columns));
  data.pixels = images.read_rest(count * data.rows * data.columns);
  data.brightest = *std::max_element(data.pixels.begin(), data.pixels.end());

  GzipFile labels(labels_path);
  require_magic(labels, kBytesInOneDimension, "labels");
  const std::size_t labels_count = labels.read_number("the number of labels");
  if (labels_count != count)
    throw Error(ErrorKind::usage, fmt::format("'{}' has {} images, but '{}' has {} labels: they do "
                                              "not belong together",
                                              images_path, count, labels_path, labels_count));
  data.labels = labels.read_rest(labels_count);
  return data;
}

}  // namespace digits
