// Small files of schedules of each format, which are right.
#pragma once

#include <string>

namespace tutti::schedule_texts {

/// Describes an all_reduce of two ranks: each receives the other's half, adds its own, and sends
/// the sum back. It knows only calls in place: sums lie where inputs were.
inline const std::string kMsccl =
    R"(<algo name="halves" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1" minBytes="64" maxBytes="4096">
  <gpu id="0" i_chunks="2" o_chunks="0" s_chunks="1">
    <tb id="0" send="1" recv="-1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="1"/>
      <step s="1" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="2" deps="0" hasdep="0"/>
    </tb>
    <tb id="1" send="-1" recv="1" chan="0">
      <step s="0" type="r" srcbuf="s" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
      <step s="1" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="2" deps="0" hasdep="0"/>
      <step s="2" type="r" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="0" deps="0" hasdep="0"/>
    </tb>
    <tb id="2" send="-1" recv="-1" chan="0">
      <step s="0" type="re" srcbuf="s" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="1" deps="0" hasdep="1"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="0" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrcs" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
)";

/// An all_to_all of two ranks, which knows only calls that are not in place.
inline const std::string kMscclAllToAll =
    R"(<algo name="swap" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" coll="alltoall" inplace="0" outofplace="1" minBytes="0" maxBytes="0">
  <gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0">
    <tb id="0" send="-1" recv="1" chan="0"><step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>
    <tb id="1" send="1" recv="-1" chan="0"><step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>
    <tb id="2" send="-1" recv="-1" chan="0"><step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="2" s_chunks="0">
    <tb id="0" send="-1" recv="0" chan="0"><step s="0" type="r" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>
    <tb id="1" send="0" recv="-1" chan="0"><step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>
    <tb id="2" send="-1" recv="-1" chan="0"><step s="0" type="cpy" srcbuf="i" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/></tb>
  </gpu>
</algo>
)";

/// Describes an all_reduce of two ranks by packets: each puts the half that the other adds up into
/// the other's scratch, adds its own half, and puts the sum there, too. A barrier of two blocks,
/// signals and ops that do nothing are in it, too.
inline const std::string kMscclpp =
    R"({"name": "packets", "collective": "allreduce", "protocol": "LL", "inplace": true,
 "min_message_size": 128, "max_message_size": 65536,
 "gpus": [
  {"id": 0, "input_chunks": 2, "output_chunks": 2, "scratch_chunks": 2,
   "channels": [{"channel_type": "memory", "connected_to": [1]}],
   "remote_buffers": [{"rank": 1, "type": "s", "access_channel_types": ["memory"]}],
   "threadblocks": [
    {"id": 0, "channels": [{"channel_type": "memory", "channel_ids": [0]}],
     "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
     "ops": [{"name": "signal", "channel_ids": [0], "channel_type": "memory"},
             {"name": "wait", "channel_ids": [0], "channel_type": "memory"},
             {"name": "ppkt", "channel_type": "memory", "src_buff": [{"type": "i", "index": 1, "size": 1}],
              "dst_buff": [{"buffer_id": 0, "index": 0, "size": 1}]},
             {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2}]},
    {"id": 1, "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
     "ops": [{"name": "nop"}, {"name": "barrier", "barrier_id": 0, "num_threadblocks": 2},
             {"name": "respkt", "channel_type": "memory",
              "src_buff": [{"type": "i", "index": 0, "size": 1}, {"type": "s", "index": 0, "size": 1}],
              "dst_buff": [{"type": "i", "index": 0, "size": 1}, {"buffer_id": 0, "index": 1, "size": 1}]},
             {"name": "upkt", "src_buff": [{"type": "s", "index": 1, "size": 1}],
              "dst_buff": [{"type": "i", "index": 1, "size": 1}]}]}]},
  {"id": 1, "input_chunks": 2, "output_chunks": 2, "scratch_chunks": 2,
   "channels": [{"channel_type": "memory", "connected_to": [0]}],
   "remote_buffers": [{"rank": 0, "type": "s", "access_channel_types": ["memory"]}],
   "threadblocks": [
    {"id": 0, "channels": [{"channel_type": "memory", "channel_ids": [0]}],
     "remote_buffer_refs": [{"access_channel_type": "memory", "remote_buffer_ids": [0]}],
     "ops": [{"name": "signal", "channel_ids": [0], "channel_type": "memory"},
             {"name": "wait", "channel_ids": [0], "channel_type": "memory"},
             {"name": "ppkt", "channel_type": "memory", "src_buff": [{"type": "i", "index": 0, "size": 1}],
              "dst_buff": [{"buffer_id": 0, "index": 0, "size": 1}]},
             {"name": "respkt", "channel_type": "memory",
              "src_buff": [{"type": "i", "index": 1, "size": 1}, {"type": "s", "index": 0, "size": 1}],
              "dst_buff": [{"type": "i", "index": 1, "size": 1}, {"buffer_id": 0, "index": 1, "size": 1}]},
             {"name": "upkt", "src_buff": [{"type": "s", "index": 1, "size": 1}],
              "dst_buff": [{"type": "i", "index": 0, "size": 1}]}]}]}
 ]}
)";

}  // namespace tutti::schedule_texts
