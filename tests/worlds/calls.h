// The calls of the runtime that steps stand for.
#pragma once

#include "player.h"
#include "runtime/call.h"
#include "runtime/p2p/transfer.h"

namespace tutti::worlds {

inline Call call_of(const Step& step, const Seat& seat, Memory& memory, Group* group = nullptr) {
  Call call;
  call.kind.what = step.collective;
  call.kind.type = step.type;
  call.kind.op = step.op;
  call.kind.root = step.root % static_cast<int>(seat.members.size());
  call.kind.count = step.count;
  call.input = memory.in();
  call.output = memory.out();
  call.group = group;
  if (step.collective == Collective::barrier)
    call = Call{{Collective::barrier}, nullptr, nullptr, {}, {}};
  call.group = group;
  return call;
}

inline TransferCall transfer(const Step& step, std::size_t number, Direction direction, int peer,
                             std::byte* buffer, Group* group = nullptr) {
  TransferCall call;
  call.direction = direction;
  call.type = step.type;
  call.peer = peer;
  call.tag = static_cast<int>(number);
  call.count = step.count;
  call.buffer = buffer;
  call.group = group;
  return call;
}

}  // namespace tutti::worlds
