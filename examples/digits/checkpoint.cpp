#include "checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <bit>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include <tutti/error.hpp>

namespace digits {
namespace {

using tutti::Error;
using tutti::ErrorKind;

// The file holds a magic number, the version, the number of widths, the widths, seed, batch,
// learning rate, momentum, epochs done, the number of values, the values and the velocity; then the
// CRC-32 of all that. Numbers are little-endian.
static_assert(std::endian::native == std::endian::little);
constexpr std::string_view kMagic = "TuttiDGT";
constexpr std::uint32_t kVersion = 1;

std::uint32_t crc_of(std::string_view bytes) {
  return static_cast<std::uint32_t>(
      crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

class Writer {
 public:
  template <typename T>
  void put(const T& value) {
    static_assert(std::is_arithmetic_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  template <typename T>
  void put_all(std::span<const T> values) {
    bytes_.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
  }
  void put_text(std::string_view text) { bytes_ += text; }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

class Reader {
 public:
  Reader(std::string path, std::string_view bytes) : path_(std::move(path)), rest_(bytes) {}

  template <typename T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  template <typename T>
  std::vector<T> get_all(std::uint64_t count) {
    // A wrong number must not allocate memory.
    if (count > rest_.size() / sizeof(T)) cut_short();
    std::vector<T> values(count);
    if (count > 0) std::memcpy(values.data(), take(count * sizeof(T)).data(), count * sizeof(T));
    return values;
  }
  std::string_view take(std::size_t size) {
    if (size > rest_.size()) cut_short();
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::size_t left() const { return rest_.size(); }

 private:
  [[noreturn]] void cut_short() const {
    throw Error(
        ErrorKind::corrupt,
        fmt::format("checkpoint '{}' is cut short. Start without it, or from an older one", path_));
  }

  std::string path_;
  std::string_view rest_;
};

[[noreturn]] void fail_to(const char* what, const std::string& path,
                          ErrorKind kind = ErrorKind::unavailable) {
  throw Error(kind, fmt::format("cannot {} '{}': {}", what, path, std::strerror(errno)));
}

class Descriptor {
 public:
  Descriptor(const std::string& path, int flags)
      : fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail_to("open", path);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(fd_); }
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_to_disk(const std::string& path, std::string_view bytes) {
  const Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC);
  while (!bytes.empty()) {
    const ssize_t written = write(file.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_to("write", path);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  if (fsync(file.get()) != 0) fail_to("write", path);
}

std::string joined(std::span<const std::uint64_t> widths) {
  std::string text;
  for (const std::uint64_t width : widths)
    text += fmt::format("{}{}", text.empty() ? "" : "-", width);
  return text;
}

void require_same(const std::string& path, const Recipe& found, const Recipe& expected) {
  std::string differences;
  const auto compare = [&](const char* what, const auto& theirs, const auto& ours) {
    if (theirs != ours)
      differences +=
          fmt::format("{}{} {}, this run {}", differences.empty() ? "" : "; ", what, theirs, ours);
  };
  compare("layers of", joined(found.widths), joined(expected.widths));
  compare("seed", found.seed, expected.seed);
  compare("batch", found.batch, expected.batch);
  compare("learning rate", found.learning_rate, expected.learning_rate);
  compare("momentum", found.momentum, expected.momentum);
  if (!differences.empty())
    throw Error(ErrorKind::usage, fmt::format("checkpoint '{}' is of another training: it has {}. "
                                              "Resume with the same options",
                                              path, differences));
}

}  // namespace

void save(const std::string& path, const Checkpoint& checkpoint) {
  assert(checkpoint.values.size() == checkpoint.velocity.size());
  const Recipe& recipe = checkpoint.recipe;
  Writer out;
  out.put_text(kMagic);
  out.put(kVersion);
  out.put(static_cast<std::uint32_t>(recipe.widths.size()));
  out.put_all(std::span(recipe.widths));
  out.put(recipe.seed);
  out.put(recipe.batch);
  out.put(recipe.learning_rate);
  out.put(recipe.momentum);
  out.put(checkpoint.epochs_done);
  out.put(static_cast<std::uint64_t>(checkpoint.values.size()));
  out.put_all(std::span(checkpoint.values));
  out.put_all(std::span(checkpoint.velocity));
  out.put(crc_of(out.bytes()));

  const std::string unfinished = path + ".unfinished";
  try {
    write_to_disk(unfinished, out.bytes());
    if (rename(unfinished.c_str(), path.c_str()) != 0) fail_to("replace", path);
  } catch (const Error&) {
    unlink(unfinished.c_str());
    throw;
  }
  // The new name is on disk only when its directory is.
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  const Descriptor entry(directory.empty() ? "." : directory.string(), O_RDONLY | O_DIRECTORY);
  if (fsync(entry.get()) != 0) fail_to("write the directory of", path);
}

Checkpoint load(const std::string& path, const Recipe& recipe) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_to("open checkpoint", path, ErrorKind::usage);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) fail_to("read checkpoint", path);

  Reader in(path, bytes);
  const std::string_view magic = std::string_view(bytes).substr(0, kMagic.size());
  if (magic != kMagic.substr(0, magic.size()))
    throw Error(ErrorKind::usage, fmt::format("'{}' is not a checkpoint of this program", path));
  in.take(kMagic.size());
  if (const auto version = in.get<std::uint32_t>(); version != kVersion)
    throw Error(ErrorKind::usage,
                fmt::format("checkpoint '{}' is of version {}, this program reads "
                            "version {}",
                            path, version, kVersion));
  Checkpoint checkpoint;
  const auto widths = in.get<std::uint32_t>();
  checkpoint.recipe.widths = in.get_all<std::uint64_t>(widths);
  checkpoint.recipe.seed = in.get<std::uint64_t>();
  checkpoint.recipe.batch = in.get<std::uint64_t>();
  checkpoint.recipe.learning_rate = in.get<float>();
  checkpoint.recipe.momentum = in.get<float>();
  checkpoint.epochs_done = in.get<std::uint64_t>();
  const auto count = in.get<std::uint64_t>();
  checkpoint.values = in.get_all<float>(count);
  checkpoint.velocity = in.get_all<float>(count);
  const auto crc = in.get<std::uint32_t>();
  if (in.left() > 0 || crc != crc_of(std::string_view(bytes).substr(0, bytes.size() - sizeof crc)))
    throw Error(ErrorKind::corrupt, fmt::format("checkpoint '{}' is damaged: its checksum does not "
                                                "match. Start without it, or from an older one",
                                                path));
  require_same(path, checkpoint.recipe, recipe);
  return checkpoint;
}

}  // namespace digits
