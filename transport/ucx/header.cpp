#include "transport/ucx/header.h"

#include <cstring>

#include "transport/queue_pair/frame.h"

namespace tutti::ucx {
namespace {

bool makes_sense(const Header& header, std::size_t payload_bytes) {
  if (header.magic != Header::kMagic || header.token == 0) return false;
  switch (header.kind) {
    case Kind::frame:
      return header.refused == 0 && header.address == 0 && header.key == 0 &&
             header.length == payload_bytes && payload_bytes <= qp::kSlotBytes;
    case Kind::read:
      return header.refused == 0 && header.key != 0 && header.length != 0 && payload_bytes == 0;
    case Kind::answer:
      return header.refused <= 1 && header.address == 0 && header.key == 0 &&
             header.length == payload_bytes && (header.refused == 1) == (payload_bytes == 0);
  }
  return false;
}

}  // namespace

std::optional<Header> parse_header(std::span<const std::byte> bytes, std::size_t payload_bytes) {
  Header header;
  if (bytes.size() != sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  return makes_sense(header, payload_bytes) ? std::optional(header) : std::nullopt;
}

}  // namespace tutti::ucx
