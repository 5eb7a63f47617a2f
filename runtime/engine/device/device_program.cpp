#include "runtime/engine/device/device_program.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

#include <tutti/error.hpp>

#include "runtime/engine/device/kernels.h"
#include "transport/ring/ring_place.h"

namespace tutti::device {
namespace {

/// A record of several arrays that is put together on the host, and then copied to the GPU.
class Image {
 public:
  /// Reserves room for `count` elements, and returns its offset.
  template <typename T>
  std::size_t reserve(std::size_t count) {
    const std::size_t at = padded(bytes_.size());
    bytes_.resize(at + count * sizeof(T));
    return at;
  }
  template <typename T>
  std::size_t add(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::size_t at = reserve<T>(values.size());
    if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
    return at;
  }
  template <typename T>
  void set(std::size_t at, const T& value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  const std::vector<std::byte>& bytes() const noexcept { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// The name of the kernel for the operations and the type of a call.
std::string kernel_name(const std::vector<Program>& stripes) {
  const Program& program = stripes.front();
  const bool copies = std::all_of(program.steps.begin(), program.steps.end(),
                                  [](const Program::Step& step) { return step.copies(); });
  return fmt::format("tutti_run_{}", copies ? "bytes" : to_string(program.call.type));
}

void check_can_run(const std::vector<Program>& stripes) {
  const Program& program = stripes.front();
  if (program.call.reduction != 0)
    throw Error(ErrorKind::unavailable,
                "a reduction of the program's own runs on the host, and the calls of this "
                "communicator run on GPUs: set TUTTI_DEVICE=none");
  if (program.widest_step > kMostOperands)
    throw Error(ErrorKind::unavailable,
                fmt::format("an algorithm with steps of {} operands on a GPU, which takes {} at "
                            "most; choose another one, or set TUTTI_DEVICE=none",
                            program.widest_step, kMostOperands));
  if (program.lanes.size() * stripes.size() > kMostBlocks)
    throw Error(ErrorKind::unavailable,
                fmt::format("an algorithm with {} lanes on a GPU, which runs {} at most; choose "
                            "another one, or set TUTTI_DEVICE=none",
                            program.lanes.size() * stripes.size(), kMostBlocks));
}

}  // namespace

DeviceProgram::DeviceProgram(std::vector<Program> stripes, std::shared_ptr<GpuDevice> gpu,
                             Ends& ends, cuda::Stream stream)
    : BoundProgram(stripes.front()),
      kernel(gpu->kernel(kernel_name(stripes))),
      gpu_(std::move(gpu)) {
  check_can_run(stripes);
  for (const Program& stripe : stripes) ends.add(stripe.sends, stripe.receives);
  lanes = static_cast<std::uint32_t>(program.lanes.size());
  blocks = lanes * static_cast<std::uint32_t>(stripes.size());
  scratch_bytes = program.scratch_bytes * stripes.size();
  upload(stripes, ends, stream);
}

DeviceProgram::~DeviceProgram() { gpu_->give_back(GpuDevice::Kind::device, block_); }

void DeviceProgram::upload(const std::vector<Program>& stripes, const Ends& ends,
                           cuda::Stream stream) {
  struct Offsets {
    std::size_t lanes, steps, operands, masks, sends, receives, states;
  };
  Image image;
  const std::size_t at_records = image.reserve<ProgramRecord>(stripes.size());
  std::vector<Offsets> parts;
  for (const Program& stripe : stripes) {
    std::vector<cuda::Address> sends, receives;  // kernels read them as pointers
    for (const Program::Port& port : stripe.sends)
      sends.push_back(cuda::address_of(ends.sender(port)));
    for (const Program::Port& port : stripe.receives)
      receives.push_back(cuda::address_of(ends.receiver(port)));
    parts.push_back({image.add(stripe.lanes), image.add(stripe.steps), image.add(stripe.operands),
                     image.add(stripe.masks), image.add(sends), image.add(receives),
                     image.reserve<LaneState>(stripe.lanes.size())});
  }
  block_ = gpu_->take(GpuDevice::Kind::device, image.bytes().size());
  const auto address = [this](std::size_t offset, auto* type) {
    return reinterpret_cast<decltype(type)>(block_.memory + offset);
  };
  for (std::size_t number = 0; number < stripes.size(); ++number) {
    const Offsets& at = parts[number];
    ProgramRecord record{};
    record.head = stripes[number];
    record.lanes = address(at.lanes, static_cast<Program::Lane*>(nullptr));
    record.steps = address(at.steps, static_cast<Program::Step*>(nullptr));
    record.operands = address(at.operands, static_cast<Program::Operand*>(nullptr));
    if (!stripes[number].masks.empty())
      record.masks = address(at.masks, static_cast<Program::Masks*>(nullptr));
    record.sends = address(at.sends, static_cast<SendEnd**>(nullptr));
    record.receives = address(at.receives, static_cast<RecvEnd**>(nullptr));
    record.states = address(at.states, static_cast<LaneState*>(nullptr));
    image.set(at_records + number * sizeof record, record);
  }
  records = address(at_records, static_cast<ProgramRecord*>(nullptr));
  gpu_->upload(block_.memory, image.bytes().data(), image.bytes().size(), stream);
}

}  // namespace tutti::device
