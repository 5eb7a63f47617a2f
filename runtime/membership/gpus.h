// The GPUs of the ranks: how each opens its own, and how all learn whether GPUs run their
// collectives.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "devices/gpu_device.h"
#include "rendezvous/agreement.h"
#include "runtime/communicator_parts.h"

namespace tutti {

/// Precedes an error message, which takes the place of what a rank would tell the others.
inline constexpr std::string_view kRefused = "refused: ";

/// Opens the GPU that the configuration names for `rank`. Returns null if it names none; throws
/// `unavailable` if it cannot be used.
std::shared_ptr<GpuDevice> open_gpu(const Config& config, int rank);

/// Does that for `parts`, unless they have a GPU, and returns what this rank says of it to the
/// others. An error becomes a part of the text, so that every rank reports it in place of waiting
/// for this one.
std::string introduce_gpu(CommunicatorParts& parts);

/// Takes what all ranks have said. Throws `unavailable` if a rank cannot use its GPU, and
/// `mismatch` if only some ranks have one. Ranks that share no memory leave their GPUs unused, and
/// say so in the log.
void agree_on_gpus(CommunicatorParts& parts, const Texts& said);

}  // namespace tutti
