#include "common/crc32c.h"

#include <array>
#include <cstring>

#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace tutti {
namespace {

constexpr std::uint32_t kPolynomial = 0x82f63b78;  // reflected

using Table = std::array<std::uint32_t, 256>;

// tables[k][b] is the effect of byte b on the remainder when k bytes follow it.
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < 8; ++k)
    for (std::size_t byte = 0; byte < 256; ++byte)
      tables[k][byte] = tables[k - 1][byte] >> 8 ^ tables[0][tables[k - 1][byte] & 0xff];
  return tables;
}
constexpr std::array<Table, 8> kTables = make_tables();

// The effect of a number of zero bytes on a remainder. It is a linear function, represented by the
// images of the remainder's bits.
using Matrix = std::array<std::uint32_t, 32>;

constexpr std::uint32_t product(const Matrix& matrix, std::uint32_t crc) {
  std::uint32_t image = 0;
  for (std::size_t bit = 0; crc != 0; crc >>= 1, ++bit)
    if (crc & 1) image ^= matrix[bit];
  return image;
}

// `bytes` must be a power of two.
constexpr Matrix zeros(std::size_t bytes) {
  Matrix matrix{};
  for (std::size_t bit = 0; bit < 32; ++bit) {
    const std::uint32_t crc = std::uint32_t{1} << bit;
    matrix[bit] = crc >> 8 ^ kTables[0][crc & 0xff];
  }
  for (; bytes > 1; bytes /= 2) {
    Matrix twice{};
    for (std::size_t bit = 0; bit < 32; ++bit) twice[bit] = product(matrix, matrix[bit]);
    matrix = twice;
  }
  return matrix;
}

// The same linear function as tables that are looked up byte by byte.
template <std::size_t kBytes>
constexpr std::array<Table, 4> make_shift() {
  const Matrix matrix = zeros(kBytes);
  std::array<Table, 4> shift{};
  for (std::size_t k = 0; k < 4; ++k)
    for (std::uint32_t byte = 0; byte < 256; ++byte)
      shift[k][byte] = product(matrix, byte << 8 * k);
  return shift;
}
template <std::size_t kBytes>
constexpr std::array<Table, 4> kShift = make_shift<kBytes>();

template <std::size_t kBytes>
std::uint32_t shift(std::uint32_t crc) noexcept {
  const auto& by = kShift<kBytes>;
  return by[0][crc & 0xff] ^ by[1][crc >> 8 & 0xff] ^ by[2][crc >> 16 & 0xff] ^ by[3][crc >> 24];
}

std::uint64_t load(const unsigned char* from) noexcept {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

#if defined(__x86_64__)
#define TUTTI_CRC_TARGET __attribute__((target("sse4.2")))
bool has_instruction() noexcept { return __builtin_cpu_supports("sse4.2") != 0; }
TUTTI_CRC_TARGET inline std::uint32_t step(std::uint32_t crc, std::uint64_t word) noexcept {
  return static_cast<std::uint32_t>(__builtin_ia32_crc32di(crc, word));
}
TUTTI_CRC_TARGET inline std::uint32_t step(std::uint32_t crc, unsigned char byte) noexcept {
  return __builtin_ia32_crc32qi(crc, byte);
}
#elif defined(__aarch64__)
#define TUTTI_CRC_TARGET
constexpr unsigned long kHwcapCrc32 = 1 << 7;  // HWCAP_CRC32 of <asm/hwcap.h>
bool has_instruction() noexcept { return (getauxval(AT_HWCAP) & kHwcapCrc32) != 0; }
inline std::uint32_t step(std::uint32_t crc, std::uint64_t word) noexcept {
  asm(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
  return crc;
}
inline std::uint32_t step(std::uint32_t crc, unsigned char byte) noexcept {
  asm(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1"
      : "+r"(crc)
      : "r"(static_cast<std::uint32_t>(byte)));
  return crc;
}
#endif

#if defined(TUTTI_CRC_TARGET)
// The instruction has a latency of three cycles, and one can start in each cycle, so three streams
// are processed side by side.
template <std::size_t kStream>
TUTTI_CRC_TARGET std::uint32_t three_streams(std::uint32_t crc, const unsigned char*& at,
                                             std::size_t& left) noexcept {
  for (; left >= 3 * kStream; left -= 3 * kStream, at += 3 * kStream) {
    std::uint32_t second = 0, third = 0;
    for (std::size_t i = 0; i < kStream; i += sizeof(std::uint64_t)) {
      crc = step(crc, load(at + i));
      second = step(second, load(at + kStream + i));
      third = step(third, load(at + 2 * kStream + i));
    }
    crc = shift<kStream>(shift<kStream>(crc) ^ second) ^ third;
  }
  return crc;
}

TUTTI_CRC_TARGET std::uint32_t by_instruction(std::uint32_t crc, const unsigned char* at,
                                              std::size_t left) noexcept {
  crc = three_streams<4096>(crc, at, left);
  crc = three_streams<256>(crc, at, left);
  for (; left >= sizeof(std::uint64_t); left -= sizeof(std::uint64_t), at += sizeof(std::uint64_t))
    crc = step(crc, load(at));
  for (; left > 0; --left) crc = step(crc, *at++);
  return crc;
}
#endif

}  // namespace

std::uint32_t crc32c_by_tables(const void* data, std::size_t bytes) noexcept {
  const auto* at = static_cast<const unsigned char*>(data);
  std::uint32_t crc = ~std::uint32_t{0};
  for (; bytes >= 8; bytes -= 8, at += 8) {
    const std::uint64_t word = load(at) ^ crc;  // tutti runs on little-endian machines only
    crc = 0;
    for (std::size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][word >> 8 * k & 0xff];
  }
  for (; bytes > 0; --bytes) crc = crc >> 8 ^ kTables[0][(crc ^ *at++) & 0xff];
  return ~crc;
}

std::uint32_t crc32c(const void* data, std::size_t bytes) noexcept {
#if defined(TUTTI_CRC_TARGET)
  if (has_instruction())
    return ~by_instruction(~std::uint32_t{0}, static_cast<const unsigned char*>(data), bytes);
#endif
  return crc32c_by_tables(data, bytes);
}

}  // namespace tutti
