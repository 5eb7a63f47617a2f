// A store through which the other ranks get something else than what rank 1 says about itself.
#pragma once

#include <algorithm>
#include <list>
#include <memory>
#include <string>
#include <utility>

#include <tutti/store.hpp>

#include "../transport/middle.h"
#include "rendezvous/roster.h"
#include "transport/mesh/address.h"

namespace tutti::test {

/// The store of rank 1. The address at which rank 1 listens for TCP is replaced by that of a
/// process between it and its peers.
class Misled : public Store {
 public:
  explicit Misled(std::shared_ptr<Store> store) : store_(std::move(store)) {}

  void set(std::string_view key, std::string_view value, Deadline deadline) override {
    if (!key.ends_with("/hello/1")) return store_->set(key, value, deadline);
    Roster said = decode_roster(value, 1);  // It holds the entry of rank 1 alone.
    change(said);
    store_->set(key, encode(said), deadline);
  }
  std::string get(std::string_view key, Deadline deadline) override {
    return store_->get(key, deadline);
  }
  std::int64_t add(std::string_view key, std::int64_t amount, Deadline deadline) override {
    return store_->add(key, amount, deadline);
  }
  void wait(std::string_view key, Deadline deadline) override { store_->wait(key, deadline); }

  /// The process in the middle of the last start-up, shrink or grow.
  Middle& middle() { return middles_.back(); }
  /// Whether any of them has changed a bit.
  bool has_flipped() const {
    return std::any_of(middles_.begin(), middles_.end(),
                       [](const Middle& middle) { return middle.has_flipped(); });
  }

 protected:
  virtual void change(Roster& said) {
    Texts& column = said.columns.back();
    const std::string made = "tcp\n";  // This is the transport that was created ahead.
    if (!column[0].starts_with(made)) return;
    mesh::Address address = mesh::Address::parse(column[0].substr(made.size())).value();
    for (const SocketAddress& place : address.places)
      if (place.host == "127.0.0.1") middles_.emplace_back(place);
    address.places = {middle().place()};
    column = Texts(made + address.to_string());
  }

  std::list<Middle> middles_;

 private:
  const std::shared_ptr<Store> store_;
};

}  // namespace tutti::test
