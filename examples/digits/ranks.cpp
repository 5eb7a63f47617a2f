#include "ranks.h"

#include <exception>
#include <thread>
#include <utility>

namespace digits {
namespace {

bool follows_from_another(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const tutti::Error& error) {
    return error.kind() == tutti::ErrorKind::peer_lost;
  } catch (...) {
    return false;
  }
}

}  // namespace

Result train_on_threads(int ranks, const Dataset& data, const Settings& settings,
                        Observer* observer) {
  std::vector<tutti::Communicator> communicators = tutti::Communicator::in_process(ranks);
  std::vector<Result> results(communicators.size());
  std::vector<std::exception_ptr> failures(communicators.size());
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < communicators.size(); ++r)
    threads.emplace_back([&, r] {
      tutti::Communicator mine = std::move(communicators[r]);  // its end informs the others
      try {
        results[r] = train(mine, data, settings, observer);
      } catch (...) {
        failures[r] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();

  std::exception_ptr first;
  for (const std::exception_ptr& failure : failures)
    if (failure && (!first || (follows_from_another(first) && !follows_from_another(failure))))
      first = failure;
  if (first) std::rethrow_exception(first);
  return results[0];
}

}  // namespace digits
