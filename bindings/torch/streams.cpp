#include "streams.h"

#include <algorithm>
#include <utility>

#include <c10/core/impl/VirtualGuardImpl.h>

namespace tutti::pytorch {
namespace {

c10::impl::VirtualGuardImpl devices(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type());
}

}  // namespace

c10::Stream Streams::of(c10::Device device, Lane lane) {
  const std::lock_guard lock(mutex_);
  for (const Made& each : made_)
    if (each.device == device && each.lane == lane) return each.stream;
  const c10::Stream stream = devices(device).getStreamFromGlobalPool(device, false);
  made_.push_back({device, lane, stream});
  return stream;
}

std::optional<c10::Device> Streams::first_device() {
  const std::lock_guard lock(mutex_);
  if (made_.empty()) return std::nullopt;
  return made_.front().device;
}

c10::Stream current_stream(c10::Device device) { return devices(device).getStream(device); }

c10::Device indexed(c10::Device device) {
  return device.has_index() ? device : devices(device).getDevice();
}

void* handle_of(const c10::Stream& stream) {
  return devices(stream.device()).getStreamNativeHandle(stream);
}

bool is_captured(const c10::Stream& stream) {
  return devices(stream.device()).isStreamCapturing(stream);
}

c10::Event event_of(const c10::Stream& stream) {
  c10::Event event(stream.device_type());
  event.record(stream);
  return event;
}

void wait_for(const c10::Stream& later, const c10::Stream& earlier) {
  event_of(earlier).block(later);
}

void keep_for(const c10::Stream& stream, const at::Tensor& tensor) {
  devices(stream.device()).recordDataPtrOnStream(tensor.storage().data_ptr(), stream);
}

bool lie_apart(const std::vector<at::Tensor>& tensors) {
  std::vector<std::pair<const char*, const char*>> ranges;
  for (const at::Tensor& each : tensors) {
    if (each.device().is_cpu()) return false;
    if (!each.is_contiguous()) return true;
    const auto* begin = static_cast<const char*>(each.const_data_ptr());
    if (each.numel() > 0) ranges.emplace_back(begin, begin + each.nbytes());
  }
  std::sort(ranges.begin(), ranges.end());
  return std::adjacent_find(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) {
           return a.second != b.first;
         }) != ranges.end();
}

std::vector<at::Tensor> in_one_piece(const std::vector<at::Tensor>& tensors) {
  std::int64_t total = 0, begin = 0;
  for (const at::Tensor& each : tensors) total += each.numel();
  const at::Tensor whole = at::empty({total}, tensors.front().options());
  std::vector<at::Tensor> pieces;
  for (const at::Tensor& each : tensors) {
    pieces.push_back(whole.narrow(0, begin, each.numel()).view(each.sizes()));
    begin += each.numel();
  }
  return pieces;
}

}  // namespace tutti::pytorch
