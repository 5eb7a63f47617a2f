#include "runtime/membership/gpus.h"

#include <cassert>
#include <string_view>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "common/text.h"
#include "runtime/engine/device/kernels.h"

namespace tutti {

std::shared_ptr<GpuDevice> open_gpu(const Config& config, int rank) {
  if (config.device == "none") return nullptr;
  const bool by_rank = config.device == "rank";
  const int ordinal = by_rank ? rank : parse_number<int>(config.device).value_or(0);
  try {
    return GpuDevice::open(ordinal, by_rank, device::kernels());
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("TUTTI_DEVICE (Config::device) is {}: {}", config.device,
                                          error.what()));
  }
}

std::string introduce_gpu(CommunicatorParts& parts) {
  try {
    if (parts.gpu == nullptr) parts.gpu = open_gpu(parts.runtime->config(), parts.rank);
    return parts.gpu == nullptr ? "" : parts.gpu->uuid();
  } catch (const Error& error) {
    return std::string(kRefused) + error.what();
  }
}

void agree_on_gpus(CommunicatorParts& parts, const Texts& said) {
  const auto for_each_run = [&said](auto&& look) {
    int first = 0;
    for (const Texts::Run& run : said.runs()) {
      look(first, said.values()[run.value]);
      first = static_cast<int>(run.end);
    }
  };
  for_each_run([](int rank, const std::string& text) {
    if (text.starts_with(kRefused))
      throw Error(ErrorKind::unavailable,
                  fmt::format("rank {}: {}", rank, text.substr(kRefused.size())));
  });
  for_each_run([&parts](int rank, const std::string& text) {
    if (text.empty() == (parts.gpu == nullptr)) return;
    throw Error(ErrorKind::mismatch,
                fmt::format("rank {} has TUTTI_DEVICE=none, and rank {} names a GPU: either all "
                            "ranks name one, or none does",
                            text.empty() ? rank : parts.rank, text.empty() ? parts.rank : rank));
  });
  if (parts.gpu == nullptr || parts.rings) return;
  parts.runtime->log().write(LogLevel::warn,
                             "rank {}: the host runs the collectives, not GPU {}: not all ranks "
                             "share memory",
                             parts.rank, parts.gpu->ordinal());
  parts.gpu = nullptr;
}

}  // namespace tutti
