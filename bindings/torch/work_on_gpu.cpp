// Runs calls on tensors of GPUs in the order of streams.
#include <algorithm>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <c10/core/StreamGuard.h>

#include "work.h"

namespace tutti::pytorch {

std::vector<at::Tensor> Work::inputs(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> pieces;
  if (lie_apart(tensors)) {
    pieces = in_one_piece(tensors);
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      stand_on(tensors[k]);
      pieces[k].copy_(tensors[k]);
      held_.push_back(pieces[k]);
    }
  } else {
    for (const at::Tensor& each : tensors) pieces.push_back(input(each));
  }
  return pieces;
}

std::vector<at::Tensor> Work::outputs(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> pieces;
  if (lie_apart(tensors)) {
    pieces = in_one_piece(tensors);
    for (std::size_t k = 0; k < tensors.size(); ++k) {
      stand_on(tensors[k]);
      copies_.emplace_back(tensors[k], pieces[k]);
    }
  } else {
    for (const at::Tensor& each : tensors) pieces.push_back(output(each, false));
  }
  return pieces;
}

void Work::meet_on(c10::Device device) {
  device_ = indexed(device);
  wait_on_host();
}

std::optional<c10::Device> Work::gpu() const {
  return device_ && !device_->is_cpu() ? device_ : std::nullopt;
}

void Work::enter(const c10::Stream& stream) {
  wait_for(stream, current_stream(stream.device()));
  stream_ = stream;
}

// tutti's handle is done once the stream has passed the call itself, and the tensors that the call
// uses are held until then. What the stream does after that needs them longer.
void Work::leave() {
  const c10::StreamGuard on(*stream_);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  for (const auto& [tensor, piece] : copies_) {
    tensor.copy_(piece);
    keep_for(*stream_, tensor);
    keep_for(*stream_, piece);
    held_.push_back(piece);
  }
  copies_.clear();
  left_.push_back(event_of(*stream_));
  complete_future(*stream_);
}

void Work::leave(const std::vector<c10::intrusive_ptr<Work>>& parts, Streams& streams) {
  std::vector<c10::Stream> ways;
  for (const auto& part : parts) {
    if (!part->stream_)
      for_host_ = true;  // It is a call on the host.
    else if (std::find(ways.begin(), ways.end(), *part->stream_) == ways.end())
      ways.push_back(*part->stream_);
  }
  for (const c10::Stream& way : ways) left_.push_back(event_of(way));
  if (ways.empty() || for_host_) return;
  const c10::Stream join =
      ways.size() == 1 ? ways.front() : streams.of(ways.front().device(), Lane::joins);
  if (ways.size() > 1)
    for (const c10::Event& each : left_) each.block(join);
  complete_future(join);
}

// The future has an event of its own, of the stream that is current here.
void Work::complete_future(const c10::Stream& stream) {
  const std::lock_guard lock(future_mutex_);
  const c10::StreamGuard on(stream);
  future_ = c10::make_intrusive<c10::ivalue::Future>(type_of_value(),
                                                     std::vector<c10::Device>{stream.device()});
  future_->markCompleted(value());
}

bool Work::isCompleted() {
  return handle_.done() && std::all_of(left_.begin(), left_.end(),
                                       [](const c10::Event& event) { return event.query(); });
}

void Work::synchronize() {
  for (const c10::Event& event : left_) {
    if (for_host_) event.synchronize();
    event.block(current_stream(event.device()));
  }
}

void Work::blockCurrentStream() {
  if (left_.empty()) return c10d::Work::blockCurrentStream();
  for (const c10::Event& event : left_) event.block(current_stream(event.device()));
}

}  // namespace tutti::pytorch
