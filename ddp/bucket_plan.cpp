// Plans the buckets: a pure function of the parameters' sizes and types.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <optional>

#include <tutti/ddp.hpp>

namespace tutti::ddp {
namespace {

// The size of a cache line and of the widest SIMD register: kernels are fastest at such an address,
// so every gradient starts at one. The all-reduce includes the padding, which is at most 63 B for
// each gradient.
constexpr std::size_t kGradientAlignment = 64;

std::size_t padded_bytes(const Parameter& parameter) {
  const std::size_t size = size_of(parameter.type);
  if (size == 0)
    throw Error(ErrorKind::usage, fmt::format("parameter '{}' has data type number {}, which does "
                                              "not exist: use a value of tutti::DataType",
                                              parameter.name, static_cast<int>(parameter.type)));
  if (parameter.count > (std::numeric_limits<std::size_t>::max() - kGradientAlignment) / size)
    throw Error(ErrorKind::usage,
                fmt::format("parameter '{}' has {} elements of {}: more bytes than fit in memory",
                            parameter.name, parameter.count, to_string(parameter.type)));
  return (parameter.count * size + kGradientAlignment - 1) / kGradientAlignment *
         kGradientAlignment;
}

}  // namespace

std::vector<Bucket> plan_buckets(std::span<const Parameter> parameters,
                                 const BucketOptions& options) {
  if (options.cap_bytes == 0 || options.first_cap_bytes == 0)
    throw Error(ErrorKind::usage, fmt::format("bucket caps of {} B (first) and {} B: both must be "
                                              "at least 1 B",
                                              options.first_cap_bytes, options.cap_bytes));
  struct Filling {
    std::optional<std::size_t> bucket;  // index of the bucket that is being filled, or none yet
    std::size_t cap;
  };
  std::array<Filling, kDataTypes> filling;
  filling.fill({std::nullopt, options.first_cap_bytes});

  std::vector<Bucket> buckets;
  std::size_t total = 0;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const std::size_t bytes = padded_bytes(parameters[i]);
    if (bytes > std::numeric_limits<std::size_t>::max() - total)
      throw Error(ErrorKind::usage, fmt::format("the parameters from '{}' on have more bytes than "
                                                "fit in memory",
                                                parameters[i].name));
    total += bytes;

    Filling& open = filling[static_cast<std::size_t>(parameters[i].type)];
    const bool fits = open.bucket && buckets[*open.bucket].bytes <= open.cap &&
                      bytes <= open.cap - buckets[*open.bucket].bytes;
    if (!fits) {
      if (open.bucket) open.cap = options.cap_bytes;
      open.bucket = buckets.size();
      buckets.push_back({parameters[i].type, 0, {}});
    }
    Bucket& bucket = buckets[*open.bucket];
    assert(bucket.type == parameters[i].type && bytes % kGradientAlignment == 0);
    bucket.slots.push_back({i, bucket.bytes});
    bucket.bytes += bytes;
  }
  // Buckets start strictly in order, so a bucket must not stand before one that is complete
  // earlier.
  std::sort(buckets.begin(), buckets.end(), [](const Bucket& a, const Bucket& b) {
    assert(!a.slots.empty() && !b.slots.empty());
    return a.slots.back().parameter > b.slots.back().parameter;
  });
  return buckets;
}

std::size_t gradient_bytes(std::span<const Bucket> buckets) {
  std::size_t bytes = 0;
  for (const Bucket& bucket : buckets) bytes += bucket.bytes;
  return bytes;
}

}  // namespace tutti::ddp
