#ifdef TUTTI_HAS_UCX
#include "transport/ucx/ucx_queue_pair.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cstring>
#include <limits>
#include <mutex>
#include <utility>

#include <tutti/error.hpp>

#include "transport/queue_pair/frame.h"
#include "transport/ucx/ucx_region.h"

namespace tutti::ucx {
namespace {

using qp::Completion;
using std::chrono::milliseconds;

// The end of a queue pair waits for so long until UCX has given up everything.
constexpr milliseconds kCloseLimit{5000};
// Requests to read of a peer that behaves: those under way, and those that it has taken back.
constexpr std::size_t kMostWanted = 64 * qp::kMostReads;
constexpr const char* kNonsense = "the peer sends what makes no sense";
constexpr const char* kStopped = "it was stopped";
constexpr const char* kRefused = "remote access error";
constexpr const char* kNoMemory = "out of memory";

}  // namespace

UcxQueuePair::UcxQueuePair(std::shared_ptr<Worker> worker, const qp::QueueLimits& limits,
                           void* owner)
    : worker_(std::move(worker)), limits_(limits), owner_(owner) {
  // Each request completes once, and a failure beside them.
  completions_.reserve(limits.sends + limits.receives + limits.reads + 1);
  const std::lock_guard lock(worker_->mutex);
  do token_ = worker_->next_random();
  while (token_ == 0);
  worker_->add(token_, *this);
}

UcxQueuePair::~UcxQueuePair() {
  Worker::Lock lock(worker_->mutex);
  if (error_ == nullptr) error_ = kStopped;
  close();
  worker_->wait(lock, kCloseLimit, [&] { return !is_with_ucx(); });
  for (const Arrived& arrived : arrived_)
    library().am_data_release(worker_->handle(), arrived.description);
  for (const auto& [key, region] : regions_) region->pair_ = nullptr;
  worker_->remove(token_);
  // UCX still holds them, although it has been given five seconds.
  for (Operation& operation : operations_) operation.pair = nullptr;
  if (!operations_.empty()) static_cast<void>(new std::list(std::move(operations_)));
}

std::string UcxQueuePair::address() const {
  std::string text(reinterpret_cast<const char*>(&token_), sizeof token_);
  return text + worker_->address();
}

// An address comes over the authenticated connection, from a rank of the job: UCX parses it.
void UcxQueuePair::connect(std::string_view peer) {
  const std::lock_guard lock(worker_->mutex);
  if (peer.size() <= kAddressBytesBefore)
    throw Error(ErrorKind::unavailable, "the other end's address makes no sense");
  std::memcpy(&peer_token_, peer.data(), sizeof peer_token_);
  const std::string remote(peer.substr(kAddressBytesBefore));
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(remote.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.arg = this;
  parameters.err_handler.cb = [](void* pair, ucp_ep_h, ucs_status_t status) {
    auto& its = *static_cast<UcxQueuePair*>(pair);
    its.fail(its.worker_->text(status));
  };
  const ucs_status_t status = library().ep_create(worker_->handle(), &parameters, &endpoint_);
  if (status == UCS_OK) return;
  endpoint_ = nullptr;
  throw Error(ErrorKind::unavailable,
              std::string("UCX cannot connect the two (do both ends allow the same UCX_TLS and "
                          "UCX_NET_DEVICES?): ") +
                  worker_->text(status));
}

qp::ReadLimits UcxQueuePair::reads() const noexcept {
  return {limits_.reads, true, std::numeric_limits<std::uint32_t>::max()};
}

std::unique_ptr<qp::Region> UcxQueuePair::add(std::byte* memory, std::size_t bytes, bool readable) {
  return std::make_unique<UcxRegion>(*this, memory, bytes, readable);
}

std::shared_ptr<Mapping> UcxQueuePair::mapping_of(std::uint32_t key) const {
  const auto found = regions_.find(key);
  return found == regions_.end() ? nullptr : found->second->mapping_;
}

bool UcxQueuePair::send(std::uint32_t id, const qp::Piece& piece) noexcept {
  const std::lock_guard lock(worker_->mutex);
  if (error_ != nullptr || endpoint_ == nullptr) return false;
  Header header;
  header.kind = Kind::frame;
  header.number = sent_++;
  header.length = piece.bytes;
  try {
    begin(Operation::What::frame, header, piece.data, id, piece.local_key);
  } catch (...) {
    fail(kNoMemory);
    return false;
  }
  return true;
}

// Messages that arrived before a failure are handled after it, so that their slots are given back.
bool UcxQueuePair::receive(std::uint32_t id, const qp::Piece& piece) noexcept {
  const std::lock_guard lock(worker_->mutex);
  try {
    posted_.push_back({id, piece});
  } catch (...) {
    return false;
  }
  return true;
}

bool UcxQueuePair::read(std::uint32_t id, const qp::Piece& to, std::uint64_t address,
                        std::uint32_t remote_key) noexcept {
  const std::lock_guard lock(worker_->mutex);
  if (error_ != nullptr || endpoint_ == nullptr) return false;
  Header header;
  header.kind = Kind::read;
  header.number = ++last_read_;
  header.address = address;
  header.key = remote_key;
  header.length = to.bytes;
  try {
    readings_.emplace(header.number, Reading{id, to});
    begin(Operation::What::request, header, nullptr, 0, 0);
  } catch (...) {
    readings_.erase(header.number);
    fail(kNoMemory);
    return false;
  }
  return true;
}

bool UcxQueuePair::take_back_read(std::uint32_t id) noexcept {
  const std::lock_guard lock(worker_->mutex);
  for (auto reading = readings_.begin(); reading != readings_.end(); ++reading)
    if (reading->second.id == id && !reading->second.begun) {
      readings_.erase(reading);
      return true;
    }
  return false;
}

// Begins to send a message. Throws std::bad_alloc.
void UcxQueuePair::begin(Operation::What what, const Header& header, const void* data,
                         std::uint32_t id, std::uint32_t key) {
  Operation& operation = operations_.emplace_back();
  operation.place = std::prev(operations_.end());
  operation.pair = this;
  operation.what = what;
  operation.id = id;
  operation.key = key;
  operation.header = header;
  operation.header.token = peer_token_;
  operation.mapping = mapping_of(key);
  begin_send(operation, data);
}

// Frames are small and go at once. Answers are long, and UCX brings them to where the reader wants
// them.
void UcxQueuePair::begin_send(Operation& operation, const void* data) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  const Header& header = operation.header;
  const bool long_one = header.kind == Kind::answer && header.refused == 0;
  parameters.flags = long_one ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  if (operation.mapping != nullptr) {
    parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    parameters.memh = operation.mapping->handle();
  }
  parameters.user_data = &operation;
  parameters.cb.send = [](void* request, ucs_status_t status, void* its) {
    has_ended(request, status, *static_cast<Operation*>(its));
  };
  const std::size_t bytes = header.kind == Kind::read ? 0 : header.length;
  settle(operation, library().am_send_nbx(endpoint_, kMessage, &header, sizeof header,
                                          bytes > 0 ? data : nullptr, bytes, &parameters));
}

// UCX does not call back what it has finished at once.
void UcxQueuePair::settle(Operation& operation, ucs_status_ptr_t started) noexcept {
  if (started == nullptr)
    finish(operation, UCS_OK);
  else if (UCS_PTR_IS_ERR(started))
    finish(operation, UCS_PTR_STATUS(started));
}

void UcxQueuePair::has_ended(void* request, ucs_status_t status, Operation& operation) noexcept {
  if (operation.pair == nullptr) return;  // The queue pair has ended, and forgotten it.
  const Library& library = operation.pair->library();
  operation.pair->finish(operation, status);
  library.request_free(request);
}

void UcxQueuePair::finish(Operation& operation, ucs_status_t status) noexcept {
  const Operation ended = std::move(operation);
  operations_.erase(ended.place);
  const char* const error = status == UCS_OK ? nullptr : worker_->text(status);
  switch (ended.what) {
    case Operation::What::frame: return complete({Completion::What::sent, ended.id, 0, error});
    case Operation::What::request:
      if (error != nullptr) fail(error);
      return;
    case Operation::What::answer: {
      const auto region = regions_.find(ended.key);
      if (region != regions_.end()) --region->second->reads_;
      return;
    }
    case Operation::What::arrival: return complete_read(ended.number, error);
  }
}

void UcxQueuePair::complete(const Completion& completion) {
  completions_.push_back(completion);
  if (armed_ && !std::exchange(signalled_, true)) worker_->signal();
}

void UcxQueuePair::complete_read(std::uint64_t number, const char* error) {
  const auto reading = readings_.find(number);
  if (reading == readings_.end()) return;
  const std::uint32_t id = reading->second.id;
  readings_.erase(reading);
  complete({Completion::What::read, id, 0, error});
}

ucs_status_t UcxQueuePair::take(const Header& header, void* data, bool rendezvous) noexcept {
  if (error_ != nullptr) return UCS_OK;
  try {
    switch (header.kind) {
      case Kind::frame: return take_frame(header, data, rendezvous);
      case Kind::answer: return take_answer(header, data, rendezvous);
      case Kind::read:
        if (rendezvous || wanted_.size() >= kMostWanted) break;
        wanted_.push_back(header);
        return UCS_OK;
    }
    fail(kNonsense);
  } catch (...) {
    fail(kNoMemory);
  }
  return UCS_OK;
}

// Puts a frame into a slot, and hands out those that are next. UCX may let a long one be overtaken.
ucs_status_t UcxQueuePair::take_frame(const Header& header, const void* data, bool rendezvous) {
  const bool known = header.number < taken_ || early_.contains(header.number);
  if (rendezvous || known || posted_.empty() || header.number - taken_ > limits_.receives ||
      header.length > posted_.front().piece.bytes) {
    fail(kNonsense);
    return UCS_OK;
  }
  const Slot slot = posted_.front();
  posted_.pop_front();
  if (header.length > 0) std::memcpy(slot.piece.data, data, header.length);
  early_.emplace(header.number, Early{slot.id, header.length});
  for (auto next = early_.begin(); next != early_.end() && next->first == taken_;
       next = early_.erase(next)) {
    ++taken_;
    complete({Completion::What::received, next->second.id, next->second.bytes, nullptr});
  }
  return UCS_OK;
}

ucs_status_t UcxQueuePair::take_answer(const Header& header, void* data, bool rendezvous) {
  const auto found = readings_.find(header.number);
  if (found == readings_.end()) return UCS_OK;  // It was taken back.
  Reading& reading = found->second;
  if (header.refused != 0) {
    complete_read(header.number, kRefused);
    return UCS_OK;
  }
  if (reading.begun || header.length != reading.to.bytes) {
    fail(kNonsense);
    return UCS_OK;
  }
  reading.begun = true;
  if (!rendezvous) {
    std::memcpy(reading.to.data, data, header.length);
    complete_read(header.number, nullptr);
    return UCS_OK;
  }
  arrived_.push_back({header.number, data, header.length});
  return UCS_INPROGRESS;
}

bool UcxQueuePair::work() noexcept {
  reap();
  if (std::exchange(to_close_, false)) close();
  if (error_ != nullptr || (arrived_.empty() && wanted_.empty())) return false;
  try {
    const std::vector<Header> wanted = std::exchange(wanted_, {});
    for (const Header& each : wanted)
      if (error_ == nullptr) serve(each);
    std::vector<Arrived> arrived = std::exchange(arrived_, {});
    for (const Arrived& each : arrived) bring(each);
  } catch (...) {
    fail(kNoMemory);
  }
  return true;
}

// Answers a request to read.
void UcxQueuePair::serve(const Header& wanted) {
  Header header;
  header.kind = Kind::answer;
  header.number = wanted.number;
  const auto found = regions_.find(wanted.key);
  const std::byte* const data =
      found == regions_.end() ? nullptr : found->second->find(wanted.address, wanted.length);
  if (data == nullptr) {
    header.refused = 1;
    return begin(Operation::What::answer, header, nullptr, 0, 0);
  }
  header.length = wanted.length;
  ++found->second->reads_;
  begin(Operation::What::answer, header, data, 0, wanted.key);
}

// Has UCX write an answer to where it belongs.
void UcxQueuePair::bring(const Arrived& arrived) {
  const auto found = readings_.find(arrived.number);
  if (found == readings_.end() || error_ != nullptr) {
    library().am_data_release(worker_->handle(), arrived.description);
    return;
  }
  const qp::Piece& to = found->second.to;
  Operation& operation = operations_.emplace_back();
  operation.place = std::prev(operations_.end());
  operation.pair = this;
  operation.what = Operation::What::arrival;
  operation.number = arrived.number;
  operation.mapping = mapping_of(to.local_key);
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  if (operation.mapping != nullptr) {
    parameters.op_attr_mask |= UCP_OP_ATTR_FIELD_MEMH;
    parameters.memh = operation.mapping->handle();
  }
  parameters.user_data = &operation;
  parameters.cb.recv_am = [](void* request, ucs_status_t status, std::size_t, void* its) {
    has_ended(request, status, *static_cast<Operation*>(its));
  };
  settle(operation, library().am_recv_data_nbx(worker_->handle(), arrived.description, to.data,
                                               arrived.bytes, &parameters));
}

std::size_t UcxQueuePair::poll(std::span<Completion> completions) noexcept {
  const std::lock_guard lock(worker_->mutex);
  if (completions_.empty()) worker_->progress();
  const std::size_t count = std::min(completions.size(), completions_.size());
  std::copy_n(completions_.begin(), count, completions.begin());
  completions_.erase(completions_.begin(),
                     completions_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void UcxQueuePair::arm() noexcept {
  const std::lock_guard lock(worker_->mutex);
  armed_ = true;
  worker_->arm();
}

void UcxQueuePair::stop() noexcept {
  const std::lock_guard lock(worker_->mutex);
  if (error_ == nullptr) fail(kStopped);
}

// Ends all work. UCX may be calling, so that the endpoint is closed a little later.
void UcxQueuePair::fail(const char* why) noexcept {
  if (error_ != nullptr) return;
  error_ = why;
  to_close_ = true;
  complete({Completion::What::nothing, 0, 0, why});
  for (auto reading = readings_.begin(); reading != readings_.end();) {
    const bool with_ucx =
        std::any_of(operations_.begin(), operations_.end(), [&](const Operation& operation) {
          return operation.what == Operation::What::arrival && operation.number == reading->first;
        });
    const std::uint32_t id = reading->second.id;
    reading = with_ucx ? std::next(reading) : readings_.erase(reading);
    if (!with_ucx) complete({Completion::What::read, id, 0, why});
  }
}

void UcxQueuePair::close() noexcept {
  if (endpoint_ == nullptr) return;
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t started =
      library().ep_close_nbx(std::exchange(endpoint_, nullptr), &parameters);
  closing_ = started != nullptr && !UCS_PTR_IS_ERR(started) ? started : nullptr;
}

void UcxQueuePair::reap() noexcept {
  for (ucs_status_ptr_t* const request : {&closing_, &flushing_})
    if (*request != nullptr && library().request_check_status(*request) != UCS_INPROGRESS)
      library().request_free(std::exchange(*request, nullptr));
}

bool UcxQueuePair::is_flushed() noexcept {
  const std::lock_guard lock(worker_->mutex);
  if (error_ != nullptr || endpoint_ == nullptr) return true;
  if (!std::exchange(has_asked_, true)) {
    ucp_request_param_t parameters{};
    flushing_ = library().ep_flush_nbx(endpoint_, &parameters);
    if (UCS_PTR_IS_ERR(flushing_)) flushing_ = nullptr;
  }
  worker_->progress();
  return flushing_ == nullptr;
}

UcxRegion::UcxRegion(UcxQueuePair& pair, std::byte* data, std::size_t bytes, bool readable)
    : worker_(pair.worker_), pair_(&pair), data_(data), bytes_(bytes), readable_(readable) {
  const std::lock_guard lock(worker_->mutex);
  do key_ = static_cast<std::uint32_t>(worker_->next_random());
  while (key_ == 0 || pair.regions_.contains(key_));
  mapping_ = worker_->map(data, bytes);
  pair.regions_.emplace(key_, this);
}

// The key is worthless from now on. Where the peer is reading, it may finish; where it does not in
// time, the queue pair ends, and with it the read.
UcxRegion::~UcxRegion() {
  Worker::Lock lock(worker_->mutex);
  readable_ = false;
  const auto unread = [&] { return pair_ == nullptr || reads_ == 0; };
  if (!worker_->wait(lock, kReadLimit, unread)) {
    pair_->fail("memory that it was reading has ended");
    worker_->wait(lock, kCloseLimit, unread);
  }
  if (pair_ != nullptr) pair_->regions_.erase(key_);
  mapping_.reset();
}

const std::byte* UcxRegion::find(std::uint64_t address, std::uint32_t bytes) const noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(data_);
  if (!readable_ || address < begin || bytes > bytes_ || address - begin > bytes_ - bytes)
    return nullptr;
  return data_ + (address - begin);
}

}  // namespace tutti::ucx
#endif
