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
  captured_ = is_captured(stream);
}

// tutti's handle is done once the stream has passed the call itself, and the tensors that the call
// uses are held until then. What the stream does after that needs them longer. A captured call is
// done at once, and the tensors that it uses are the allocator's to keep: it gives their memory to
// no other tensor of the graph.
void Work::leave() {
  const c10::StreamGuard on(*stream_);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  copied_ = !copies_.empty() && !captured_;
  for (const auto& [tensor, piece] : copies_) {
    tensor.copy_(piece);
    keep_for(*stream_, tensor);
    keep_for(*stream_, piece);
    held_.push_back(piece);
  }
  copies_.clear();
  if (captured_)
    for (const at::Tensor& each : held_) keep_for(*stream_, each);
  left_.push_back(event_of(*stream_));
  complete_future(*stream_);
}

void Work::leave(const std::vector<c10::intrusive_ptr<Work>>& parts, Streams& streams) {
  std::vector<c10::Stream> ways;
  for (const auto& part : parts) {
    captured_ = captured_ || part->captured_;
    copied_ = copied_ || part->copied_;
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

// The driver is asked only where it has to be, since the calling thread may be capturing something
// else.
bool Work::isCompleted() {
  const auto has_happened = [](const c10::Event& event) { return event.query(); };
  return handle_.done() && (!copied_ || std::all_of(left_.begin(), left_.end(), has_happened));
}

void Work::synchronize() {
  if (for_host_ && copied_)
    for (const c10::Event& event : left_) event.synchronize();
  block_current_stream();
}

void Work::blockCurrentStream() {
  if (left_.empty()) return c10d::Work::blockCurrentStream();
  block_current_stream();
}

// An event of a capture means nothing outside it.
void Work::block_current_stream() {
  for (const c10::Event& event : left_)
    if (const c10::Stream stream = current_stream(event.device());
        !captured_ || is_captured(stream))
      event.block(stream);
}

}  // namespace tutti::pytorch
