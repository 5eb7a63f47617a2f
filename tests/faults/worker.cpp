// One rank of a job that meets a fault: it does one thing again and again, checks every result, and
// says what it lives to see. matrix.py and kills.py start such ranks and do the rest.
// usage: worker <id> <moment> <after>     `after` an error: "shrink" or "end"
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <tutti/tutti.hpp>

#include "../runtime/misled.h"
#include "control.h"
#include "rendezvous/store/file_store.h"

namespace tutti::faults {
namespace {

using namespace std::chrono_literals;

int number(const char* variable, int otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::atoi(text);
}

/// A result is not what it must be: the worst that can happen.
class Wrong : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Has rank 1's bytes changed on their way, or says that rank 1 is another build.
class Damaged final : public test::Misled {
 public:
  Damaged(std::shared_ptr<Store> store, std::string how) : Misled(std::move(store)), how_(how) {}

  /// Changes a bit of what others receive from rank 1 from now on.
  void flip(std::size_t skip) {
    if (!middles_.empty()) middle().flip(false, skip);
  }

 private:
  void change(Roster& said) override {
    if (how_ == "version") {
      for (Texts& column : said.columns) {
        const std::string name = "tutti's version=";
        const std::string& text = column[0];
        if (const auto at = text.find(name); at != std::string::npos)
          column = Texts(text.substr(0, at) + name + "of another time\n");
      }
      return;
    }
    Misled::change(said);
    if (middles_.empty() || how_ == "later") return;
    middle().flip(true, 2);  // in the first words of a caller
  }

  const std::string how_;
};

class Worker {
 public:
  Worker(int id, std::string moment, bool shrinks)
      : id_(id), moment_(std::move(moment)), shrinks_(shrinks) {}

  int run() {
    try {
      say("begin");
      control_.wait();
      start();
      live();
    } catch (const Wrong& wrong) {
      say(std::string("wrong ") + wrong.what());
      return 1;
    } catch (const std::exception& error) {
      tell(error);
    }
    comm_.reset();
    if (damaged_ && damaged_->has_flipped()) say("flipped");
    say("ended");
    return 0;
  }

 private:
  void start() {
    if (std::getenv("WORKER_JOINS") != nullptr) {
      comm_ = Communicator::join();
    } else if (const char* path = std::getenv("WORKER_STORE")) {
      std::shared_ptr<Store> store = std::make_shared<FileStore>(
          path, id_, size_, std::chrono::steady_clock::now() + patience_);
      if (const char* how = std::getenv("WORKER_DAMAGE"); how != nullptr && id_ == 1)
        store = damaged_ = std::make_shared<Damaged>(store, how);
      comm_ = Communicator::create(store, id_, size_);
    } else {
      comm_ = Communicator::from_env();
    }
    meet();
    say("joined" + members());
  }

  // Learns who is in the communicator, and how far the others are.
  void meet() {
    members_.assign(static_cast<std::size_t>(comm_->size()), 0);
    const std::int64_t own = id_;
    comm_->all_gather(std::span<const std::int64_t>(&own, 1), std::span(members_));
    if (std::adjacent_find(members_.begin(), members_.end(), std::greater_equal<>()) !=
        members_.end())
      throw Wrong("the order of the members:" + members());
    std::int64_t latest[2] = {done_, rounds_};
    comm_->all_reduce(std::span<std::int64_t>(latest), Op::max);
    done_ = latest[0];
    rounds_ = latest[1];
    target_ = std::max(target_, done_);
  }
  std::string members() const {
    std::string text;
    for (const std::int64_t member : members_) text.append(" ").append(std::to_string(member));
    return text;
  }

  void live() {
    if (moment_ == "close") {
      say("in");
      if (control_.wait() == "flip" && damaged_) damaged_->flip(0);
      comm_.reset();
      return;
    }
    for (int errors = 0;;) {
      try {
        while (comm_ && go_on()) {
        }
        return;
      } catch (const Error& error) {
        tell(error);
        if (!shrinks_ || ++errors > 20) return;
      }
      if (!shrink()) return;
    }
  }

  // Returns whether there is a communicator of the ranks that are left.
  bool shrink() {
    for (int tries = 0; tries < 5; ++tries) {
      try {
        comm_ = comm_->shrink(patience_);
        meet();
        say("shrunk" + members());
        return true;
      } catch (const Error& error) {
        tell(error);
        if (std::string(error.what()).find("left out") != std::string::npos) return false;
      }
    }
    return false;
  }

  static void tell(const std::exception& error) {
    const auto* const named = dynamic_cast<const Error*>(&error);
    say(std::string("error ") +
        (named == nullptr ? "unnamed" : std::string(to_string(named->kind()))) + ": " +
        error.what());
  }

  // Makes the calls of one round. Returns false when all have heard that it is to end.
  bool go_on() {
    listen();
    std::int64_t heard[2] = {stop_ ? 1 : 0, target_};
    comm_->all_reduce(std::span<std::int64_t>(heard), Op::max);
    if (heard[0] != 0) {
      say("last" + members());
      return false;
    }
    target_ = heard[1];
    if (done_ < target_) return grow();
    if (moment_ == "large") sum(*comm_, 2 << 20);
    if (moment_ == "split") split();
    if (moment_ == "shrink") shrink_for_no_reason();
    if (moment_ == "mixed") mixed();
    sum(*comm_, 2);
    ++rounds_;
    if (++own_rounds_ == 3) {
      say("in");
      if (moment_ == "idle") obey(control_.wait());
      if (moment_ == "grow") target_ = 1;
    }
    return true;
  }

  void shrink_for_no_reason() {
    const std::size_t before = members_.size();
    comm_ = comm_->shrink(patience_);
    meet();
    if (members_.size() != before) say("shrunk" + members());
  }

  void listen() {
    for (std::string command = control_.look(); !command.empty(); command = control_.look())
      obey(command);
  }
  void obey(const std::string& command) {
    if (command == "stop") stop_ = true;
    if (command == "grow") ++target_;
    if (command.starts_with("flip") && damaged_)
      damaged_->flip(moment_ == "large" ? 3'000'000 : moment_ == "small" ? 100 : 1000);
  }

  bool grow() {
    ++done_;  // This one is tried once, however it ends.
    say("grows");
    comm_ = comm_->grow(1, std::chrono::milliseconds(number("WORKER_GROW_MS", 20'000)));
    meet();
    say("grown" + members());
    return true;
  }

  void check(Communicator& comm, bool right, const char* what) const {
    if (!right) throw Wrong(std::string(what) + " among " + std::to_string(comm.size()) + " ranks");
  }
  void sum(Communicator& comm, std::size_t count) {
    data_.assign(count, 0);
    for (std::size_t i = 0; i < count; ++i)
      data_[i] = static_cast<float>((id_ + 1) * static_cast<int>(i % 7 + 1));
    comm.all_reduce(std::span(data_));
    const auto all = static_cast<int>(std::accumulate(members_.begin(), members_.end(), 0) +
                                      static_cast<std::int64_t>(members_.size()));
    for (std::size_t i = 0; i < count; ++i)
      check(comm, data_[i] == static_cast<float>(all * static_cast<int>(i % 7 + 1)), "a sum");
  }
  void split() {
    std::optional<Communicator> part = comm_->split(0, -comm_->rank());
    check(*part, part->rank() == part->size() - 1 - comm_->rank(), "an order");
    sum(*part, 1000);
  }
  void ring() {
    const int size = comm_->size(), to = (comm_->rank() + 1) % size;
    const int from = (comm_->rank() + size - 1) % size;
    std::vector<int> out(10'000, id_), in(out.size());
    Work sent = comm_->send_async(std::span<const int>(out), to, 7);
    Work got = comm_->recv_async(std::span(in), from, 7);
    sent.wait();
    got.wait();
    check(*comm_, in == std::vector<int>(in.size(), int(members_[std::size_t(from)])), "a message");
  }
  // All ranks draw the same.
  void mixed() {
    const double value = static_cast<double>(rounds_);
    switch ((static_cast<std::uint64_t>(rounds_) * 2'654'435'761u >> 7) % 5) {
      case 0: return sum(*comm_, 1 << 18);
      case 1: return split();
      case 2:
        if (comm_->size() > 1) ring();
        return;
      case 3: return sum(*comm_, 1000);
      default: {
        const int root = static_cast<int>(rounds_ % comm_->size());
        std::vector<double> data(5000, comm_->rank() == root ? value : -1);
        comm_->broadcast(std::span(data), root);
        check(*comm_, data == std::vector<double>(5000, value), "a broadcast");
      }
    }
  }

  const int id_;
  const std::string moment_;
  const bool shrinks_;
  const int size_ = number("WORLD_SIZE", 1);
  const std::chrono::milliseconds patience_{number("WORKER_PATIENCE_MS", 20'000)};
  Control control_;
  std::shared_ptr<Damaged> damaged_;
  std::optional<Communicator> comm_;
  std::vector<std::int64_t> members_;
  std::vector<float> data_;
  bool stop_ = false;
  std::int64_t target_ = 0, done_ = 0;  // how often it is to grow, and has
  std::int64_t rounds_ = 0;             // of the job, on which the members agree in meet()
  int own_rounds_ = 0;
};

}  // namespace
}  // namespace tutti::faults

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return tutti::faults::Worker(std::atoi(argv[1]), argv[2], std::string(argv[3]) == "shrink").run();
}
