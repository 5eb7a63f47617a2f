#include "bindings/c/structs.h"

#include <fmt/format.h>

#include <algorithm>

#include "bindings/c/handles.h"

namespace tutti::c {
namespace {

constexpr std::size_t kFirstOptionsBytes = 24;
constexpr std::size_t kFirstConfigBytes = 80;

template <typename C, typename Cpp>
constexpr bool same(C c, Cpp cpp) {
  return static_cast<int>(c) == static_cast<int>(cpp);
}

static_assert(same(tuttiErrorUsage, ErrorKind::usage));
static_assert(same(tuttiErrorUnavailable, ErrorKind::unavailable));
static_assert(same(tuttiErrorMismatch, ErrorKind::mismatch));
static_assert(same(tuttiErrorPeerLost, ErrorKind::peer_lost));
static_assert(same(tuttiErrorTimeout, ErrorKind::timeout));
static_assert(same(tuttiErrorCorrupt, ErrorKind::corrupt));
static_assert(same(tuttiErrorInternal, ErrorKind::internal));

static_assert(same(tuttiInt8, DataType::int8));
static_assert(same(tuttiUint8, DataType::uint8));
static_assert(same(tuttiInt16, DataType::int16));
static_assert(same(tuttiUint16, DataType::uint16));
static_assert(same(tuttiInt32, DataType::int32));
static_assert(same(tuttiUint32, DataType::uint32));
static_assert(same(tuttiInt64, DataType::int64));
static_assert(same(tuttiUint64, DataType::uint64));
static_assert(same(tuttiFloat16, DataType::f16));
static_assert(same(tuttiBfloat16, DataType::bf16));
static_assert(same(tuttiFloat32, DataType::f32));
static_assert(same(tuttiFloat64, DataType::f64));
static_assert(same(tuttiFloat8e4m3, DataType::f8e4m3));
static_assert(same(tuttiFloat8e5m2, DataType::f8e5m2));
static_assert(same(tuttiComplex64, DataType::complex64));
static_assert(same(tuttiComplex128, DataType::complex128));
static_assert(same(tuttiBool, DataType::boolean));
static_assert(same(tuttiBool + 1, kDataTypes), "a data type is missing here");

static_assert(same(tuttiSum, Op::sum));
static_assert(same(tuttiProd, Op::prod));
static_assert(same(tuttiMin, Op::min));
static_assert(same(tuttiMax, Op::max));
static_assert(same(tuttiAvg, Op::avg));
static_assert(same(tuttiPremulSum, Op::premul_sum));
static_assert(same(tuttiBitAnd, Op::bit_and));
static_assert(same(tuttiBitOr, Op::bit_or));
static_assert(same(tuttiBitXor, Op::bit_xor));
static_assert(same(tuttiLogicalAnd, Op::logical_and));
static_assert(same(tuttiLogicalOr, Op::logical_or));
static_assert(same(tuttiLogicalOr + 1, kOps), "a reduction is missing here");

static_assert(same(tuttiAccumulateDefault, Accumulate::as_configured));
static_assert(same(tuttiAccumulateStep, Accumulate::step));
static_assert(same(tuttiAccumulateF32, Accumulate::f32));
static_assert(same(tuttiAccumulateReproducible, Accumulate::reproducible));

static_assert(same(tuttiLogError, static_cast<int>(LogLevel::error) + 1));
static_assert(same(tuttiLogDebug, static_cast<int>(LogLevel::debug) + 1));

// The library writes a tuttiReceived_t as if it were a Received.
static_assert(sizeof(tuttiReceived_t) == sizeof(Received));
static_assert(offsetof(tuttiReceived_t, source) == offsetof(Received, source));
static_assert(offsetof(tuttiReceived_t, tag) == offsetof(Received, tag));
static_assert(offsetof(tuttiReceived_t, count) == offsetof(Received, count));
static_assert(TUTTI_ANY_SOURCE == kAnySource && TUTTI_ANY_TAG == kAnyTag);
static_assert(TUTTI_NO_COLOR == kNoColor);

template <typename Cpp, typename C>
Cpp enumerator(C value, int values, const char* what) {
  const int number = static_cast<int>(value);
  if (number < 0 || number >= values)
    throw Error(ErrorKind::usage,
                fmt::format("there is no {} {}; there are 0 to {}", what, number, values - 1));
  return static_cast<Cpp>(number);
}

/// Applies one setting, written like a line of a configuration file.
void set_line(std::string_view line, Config& config) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos)
    throw Error(ErrorKind::usage,
                fmt::format("config->settings has '{}', which is not `name=value`", line));
  config.set(line.substr(0, equals), line.substr(equals + 1));
}

Accumulate cpp(tuttiAccumulate_t accumulate) {
  constexpr int kAccumulations = static_cast<int>(tuttiAccumulateReproducible) + 1;
  return enumerator<Accumulate>(accumulate, kAccumulations, "accumulation");
}

}  // namespace

DataType cpp(tuttiDataType_t type) { return enumerator<DataType>(type, kDataTypes, "data type"); }
Op cpp(tuttiOp_t op) { return enumerator<Op>(op, kOps, "reduction"); }

PerRank cpp(Entries list) {
  if (list.first == nullptr) return {};
  const int ranks = checked(list.comm, "comm").communicator.size();
  return {list.first, static_cast<std::size_t>(ranks)};
}

CallOptions read_options(const tuttiOptions_t* options) {
  if (options == nullptr) return {};
  const auto given = read(*options, TUTTI_OPTIONS_INITIALIZER, kFirstOptionsBytes, "options");
  CallOptions read;
  read.timeout = std::chrono::milliseconds(given.timeout_ms);
  if (given.algorithm != nullptr) read.algorithm = given.algorithm;
  if (given.group != nullptr) read.group = &checked(given.group, "options->group").group;
  read.received = reinterpret_cast<Received*>(given.received);
  read.premultiplier = given.premultiplier;
  read.accumulate = cpp(given.accumulate);
  read.stream = given.stream;
  return read;
}

CallOptions read_options(const With& with) {
  CallOptions read = read_options(with.options);
  read.reduction = &checked(with.reduction, "reduction").reduction;
  return read;
}

Config read_config(const tuttiConfig_t* config) {
  Config read = Config::from_env();
  if (config == nullptr) return read;
  const auto given = c::read(*config, TUTTI_CONFIG_INITIALIZER, kFirstConfigBytes, "config");
  for (const char* const* line = given.settings; line != nullptr && *line != nullptr; ++line)
    set_line(*line, read);
  const auto set_number = [&read](std::string_view name, auto number) {
    if (number != 0) read.set(name, fmt::format("{}", number));
  };
  if (given.transports != nullptr) read.set("transports", given.transports);
  if (given.algorithm != nullptr) read.set("algorithm", given.algorithm);
  set_number("timeout_ms", given.timeout_ms);
  set_number("startup_timeout_ms", given.startup_timeout_ms);
  set_number("message_bytes", given.message_bytes);
  set_number("ring_bytes", given.ring_bytes);
  set_number("stall_ms", std::max<std::int64_t>(given.stall_ms, 0));
  if (given.stall_ms < 0) read.set("stall_ms", "0");
  if (given.accumulate != tuttiAccumulateDefault) read.accumulate = cpp(given.accumulate);
  const int level = static_cast<int>(enumerator<tuttiLogLevel_t>(
      given.log_level, static_cast<int>(tuttiLogDebug) + 1, "log level"));
  if (level != tuttiLogDefault) read.log_level = static_cast<LogLevel>(level - 1);
  if (given.log != nullptr)
    read.log_sink = [log = given.log, context = given.log_context](LogLevel grave,
                                                                   std::string_view line) {
      log(static_cast<tuttiLogLevel_t>(static_cast<int>(grave) + 1), std::string(line).c_str(),
          context);
    };
  if (given.select != nullptr)
    read.select = [select = given.select, context = given.select_context](const SelectQuery& call) {
      const tuttiSelectQuery_t query{sizeof query,
                                     static_cast<tuttiCollective_t>(call.what),
                                     static_cast<tuttiDataType_t>(call.type),
                                     static_cast<tuttiOp_t>(call.op),
                                     call.root,
                                     call.ranks,
                                     static_cast<tuttiAccumulate_t>(call.accumulate),
                                     call.count,
                                     call.bytes};
      const char* const name = select(&query, context);
      return std::string(name != nullptr ? name : "");
    };
  return read;
}

}  // namespace tutti::c
