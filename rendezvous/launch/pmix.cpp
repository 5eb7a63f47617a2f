#include "rendezvous/launch/pmix.h"

#include <fmt/format.h>

#include <tutti/error.hpp>

#ifdef TUTTI_HAS_PMIX
#include <dlfcn.h>
#include <pmix.h>
#include <unistd.h>

#include <cassert>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "common/thread.h"
#endif

namespace tutti::pmix {

bool has_started(Environment environment) {
  return find(environment, "PMIX_RANK") && find(environment, "PMIX_NAMESPACE");
}

#ifdef TUTTI_HAS_PMIX
namespace {

constexpr const char* kLibrary = "libpmix.so.2";
// The key of a broadcast text, followed by a number, since a value in PMIx cannot be changed.
constexpr const char* kKey = "tutti.rank0.";

[[noreturn]] void refuse(std::string_view what, std::string_view why) {
  throw Error(ErrorKind::unavailable,
              fmt::format("PMIx: {}: {}; start the program with tutti-run or torchrun instead, or "
                          "set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                          what, why));
}

/// The functions of libpmix. The library is never unloaded, since it has threads of its own.
class Library {
 public:
  Library() : handle_(dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    if (handle_ == nullptr) {
      const char* why = dlerror();
      refuse(kLibrary, why == nullptr ? "not found" : why);
    }
    load(init, "PMIx_Init");
    load(finalize, "PMIx_Finalize");
    load(get, "PMIx_Get");
    load(put, "PMIx_Put");
    load(commit, "PMIx_Commit");
    load(fence, "PMIx_Fence");
    load(error_string, "PMIx_Error_string");
  }

  void check(pmix_status_t status, std::string_view what) const {
    if (status != PMIX_SUCCESS) refuse(what, error_string(status));
  }

  decltype(&PMIx_Init) init = nullptr;
  decltype(&PMIx_Finalize) finalize = nullptr;
  decltype(&PMIx_Get) get = nullptr;
  decltype(&PMIx_Put) put = nullptr;
  decltype(&PMIx_Commit) commit = nullptr;
  decltype(&PMIx_Fence) fence = nullptr;
  decltype(&PMIx_Error_string) error_string = nullptr;

 private:
  template <typename Function>
  void load(Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr) refuse(kLibrary, fmt::format("it has no {}", name));
  }

  void* const handle_;
};

}  // namespace

class Client::Session {
 public:
  Session() { library_.check(library_.init(&self_, nullptr, 0), "PMIx_Init"); }
  ~Session() {
    if (getpid() == owner_) library_.finalize(nullptr, 0);  // not in a forked child
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int rank() const { return static_cast<int>(self_.rank); }
  std::string job() const { return self_.nspace; }

  int number(std::uint32_t of_rank, const char* key) const {
    const Value value = get(of_rank, key);
    switch (value->type) {
      case PMIX_UINT16: return value->data.uint16;
      case PMIX_UINT32: return static_cast<int>(value->data.uint32);
      case PMIX_INT: return value->data.integer;
      default: refuse(key, fmt::format("a value of type {}", value->type));
    }
  }

  std::string text(std::uint32_t of_rank, const char* key) const {
    const Value value = get(of_rank, key);
    if (value->type != PMIX_STRING) refuse(key, "no text");
    const std::unique_ptr<char, decltype(&std::free)> owned(value->data.string, std::free);
    return owned.get();
  }

  /// Whether a fence has already delivered this value to this process.
  bool has(std::uint32_t of_rank, const char* key) const {
    const pmix_info_t here = flag(PMIX_OPTIONAL);
    const pmix_proc_t of = proc(of_rank);
    pmix_value_t* value = nullptr;
    if (library_.get(&of, key, &here, 1, &value) != PMIX_SUCCESS) return false;
    if (value->type == PMIX_STRING) std::free(value->data.string);
    std::free(value);
    return true;
  }

  void publish(const char* key, std::string text) const {
    assert(key != nullptr && !text.empty());
    pmix_value_t value{};
    value.type = PMIX_STRING;
    value.data.string = text.data();
    library_.check(library_.put(PMIX_GLOBAL, key, &value), "PMIx_Put");
    library_.check(library_.commit(), "PMIx_Commit");
  }

  void fence() const {
    const pmix_info_t collect = flag(PMIX_COLLECT_DATA);
    library_.check(library_.fence(nullptr, 0, &collect, 1), "PMIx_Fence");
  }

 private:
  static pmix_info_t flag(const char* key) {
    pmix_info_t info{};
    std::strncpy(info.key, key, sizeof info.key - 1);
    info.value.type = PMIX_BOOL;
    info.value.data.flag = true;
    return info;
  }

  using Value = std::unique_ptr<pmix_value_t, decltype(&std::free)>;

  pmix_proc_t proc(std::uint32_t rank) const {
    pmix_proc_t proc = self_;
    proc.rank = rank;
    return proc;
  }

  Value get(std::uint32_t of_rank, const char* key) const {
    const pmix_proc_t of = proc(of_rank);
    pmix_value_t* value = nullptr;
    library_.check(library_.get(&of, key, nullptr, 0, &value), key);
    return {value, std::free};
  }

  const Library library_;
  const pid_t owner_ = getpid();
  pmix_proc_t self_{};
};

namespace {

template <typename Session>
Job job_of(const Session& session) {
  Job job;
  job.rank = session.rank();
  job.name = session.job();
  job.size = session.number(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE);
  // The value is a list such as "0,1,7". PMIx has more direct keys (PMIX_LOCAL_RANK), but they are
  // gone when a process opens a session again.
  std::istringstream peers(session.text(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS));
  for (std::string peer; std::getline(peers, peer, ','); ++job.local_size)
    if (peer == std::to_string(job.rank)) job.local_rank = job.local_size;
  return job;
}

}  // namespace

Client::Client(TimePoint deadline) {
  struct Opened {
    std::shared_ptr<const Session> session;
    Job job;
  };
  const auto opened = call_within(deadline, [] {
    const auto session = std::make_shared<const Session>();
    return Opened{session, job_of(*session)};
  });
  if (!opened) refuse("the launcher's server on this machine", "no answer before the deadline");
  session_ = opened->session;
  job_ = opened->job;
}

std::string Client::broadcast_from_rank_0(const std::string& text, TimePoint deadline) const {
  assert(session_ != nullptr && (job_.rank == 0) == !text.empty());
  const auto received = call_within(deadline, [session = session_, text] {
    // This finds the first unused key. All ranks find the same one, because each has taken part in
    // the fences of all earlier communicators.
    std::string key;
    for (int number = 0; number == 0 || session->has(0, key.c_str()); ++number)
      key = fmt::format("{}{}", kKey, number);
    if (!text.empty()) session->publish(key.c_str(), text);
    try {
      session->fence();
      return session->text(0, key.c_str());
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("{}. A process that has left PMIx cannot come again: keep its first "
                              "communicator, and split others off it",
                              error.what()));
    }
  });
  if (!received)
    throw Error(ErrorKind::timeout,
                fmt::format("rank {}: not all {} ranks of the job {} came to PMIx's fence before "
                            "the start-up deadline; see whether they started and what they say",
                            job_.rank, job_.size, job_.name));
  return *received;
}

#else

namespace {
[[noreturn]] void refuse() {
  throw Error(ErrorKind::unavailable,
              "a launcher that speaks PMIx has started this process, and this build of tutti has "
              "no PMIx (Debian: libpmix-dev, then configure again); start the program with "
              "tutti-run or torchrun instead, or set RANK, WORLD_SIZE, MASTER_ADDR and "
              "MASTER_PORT");
}
}  // namespace

Client::Client(TimePoint) { refuse(); }
std::string Client::broadcast_from_rank_0(const std::string&, TimePoint) const { refuse(); }

#endif

}  // namespace tutti::pmix
