// Names, offsets and sizes of every field of record.h, so that documents and tests can be held to
// it. A field that is added to a structure is added here: the sizes must sum up to the structure's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "record.h"

namespace mycroft {

struct LayoutField {
  const char* structure;
  const char* name;
  uint32_t offset;
  uint32_t bytes;
};

#define MYCROFT_FIELD(S, F) \
  LayoutField { #S, #F, static_cast<uint32_t>(offsetof(S, F)), static_cast<uint32_t>(sizeof(S::F)) }

inline constexpr LayoutField kLayoutFields[] = {
    MYCROFT_FIELD(StateRecord, word0),
    MYCROFT_FIELD(StateRecord, ts_ns),
    MYCROFT_FIELD(StateRecord, comm_seq),
    MYCROFT_FIELD(StateRecord, peer),
    MYCROFT_FIELD(StateRecord, total),
    MYCROFT_FIELD(StateRecord, posted),
    MYCROFT_FIELD(StateRecord, ready),
    MYCROFT_FIELD(StateRecord, moved),
    MYCROFT_FIELD(StateRecord, done),
    MYCROFT_FIELD(StateRecord, idle_ms),
    MYCROFT_FIELD(StateRecord, flow_id),
    MYCROFT_FIELD(StateRecord, bytes),
    MYCROFT_FIELD(FlowRecord, word0),
    MYCROFT_FIELD(FlowRecord, end_ns),
    MYCROFT_FIELD(FlowRecord, comm_seq),
    MYCROFT_FIELD(FlowRecord, peer),
    MYCROFT_FIELD(FlowRecord, slices),
    MYCROFT_FIELD(FlowRecord, bytes),
    MYCROFT_FIELD(FlowRecord, durations),
    MYCROFT_FIELD(OpRecord, word0),
    MYCROFT_FIELD(OpRecord, enq_ns),
    MYCROFT_FIELD(OpRecord, comm_seq),
    MYCROFT_FIELD(OpRecord, kstart),
    MYCROFT_FIELD(OpRecord, end),
    MYCROFT_FIELD(OpRecord, bytes),
    MYCROFT_FIELD(OpRecord, peer),
    MYCROFT_FIELD(OpRecord, source_seq),
    MYCROFT_FIELD(OpRecord, op_id),
    MYCROFT_FIELD(OpRecord, flows),
    MYCROFT_FIELD(HeartbeatRecord, word0),
    MYCROFT_FIELD(HeartbeatRecord, ts_ns),
    MYCROFT_FIELD(HeartbeatRecord, comm_seq),
    MYCROFT_FIELD(HeartbeatRecord, oldest_open_ns),
    MYCROFT_FIELD(HeartbeatRecord, progress_ns),
    MYCROFT_FIELD(HeartbeatRecord, open_ops),
    MYCROFT_FIELD(HeartbeatRecord, open_flows),
    MYCROFT_FIELD(HeartbeatRecord, lost),
    MYCROFT_FIELD(HeartbeatRecord, late_ms),
    MYCROFT_FIELD(HeartbeatRecord, ticks),
    MYCROFT_FIELD(GapRecord, word0),
    MYCROFT_FIELD(GapRecord, ts_ns),
    MYCROFT_FIELD(GapRecord, since_ns),
    MYCROFT_FIELD(GapRecord, count),
    MYCROFT_FIELD(GapRecord, reserved),
    MYCROFT_FIELD(ForeignRecord, word0),
    MYCROFT_FIELD(ForeignRecord, ts_ns),
    MYCROFT_FIELD(ForeignRecord, context),
    MYCROFT_FIELD(ForeignRecord, parent),
    MYCROFT_FIELD(ForeignRecord, pid),
    MYCROFT_FIELD(ForeignRecord, rank),
    MYCROFT_FIELD(ForeignRecord, peer),
    MYCROFT_FIELD(ForeignRecord, total),
    MYCROFT_FIELD(ForeignRecord, flow_id),
    MYCROFT_FIELD(ForeignRecord, reserved0),
    MYCROFT_FIELD(ForeignRecord, reserved1),
    MYCROFT_FIELD(ProcessEntry, word0),
    MYCROFT_FIELD(ProcessEntry, started_ns),
    MYCROFT_FIELD(ProcessEntry, proc_start),
    MYCROFT_FIELD(ProcessEntry, salt),
    MYCROFT_FIELD(ProcessEntry, pid_namespace),
    MYCROFT_FIELD(ProcessEntry, boot_id),
    MYCROFT_FIELD(ProcessEntry, pid),
    MYCROFT_FIELD(ProcessEntry, rank),
    MYCROFT_FIELD(ProcessEntry, world_size),
    MYCROFT_FIELD(ProcessEntry, local_rank),
    MYCROFT_FIELD(ProcessEntry, local_world_size),
    MYCROFT_FIELD(ProcessEntry, device),
    MYCROFT_FIELD(ProcessEntry, bus_id),
    MYCROFT_FIELD(ProcessEntry, rank_source),
    MYCROFT_FIELD(ProcessEntry, host),
    MYCROFT_FIELD(ProcessEntry, addresses),
    MYCROFT_FIELD(ProcessEntry, reserved),
    MYCROFT_FIELD(CommunicatorEntry, word0),
    MYCROFT_FIELD(CommunicatorEntry, hash),
    MYCROFT_FIELD(CommunicatorEntry, opened_ns),
    MYCROFT_FIELD(CommunicatorEntry, closed_ns),
    MYCROFT_FIELD(CommunicatorEntry, rank),
    MYCROFT_FIELD(CommunicatorEntry, size),
    MYCROFT_FIELD(CommunicatorEntry, nodes),
    MYCROFT_FIELD(CommunicatorEntry, abi),
    MYCROFT_FIELD(CommunicatorEntry, last_seq),
    MYCROFT_FIELD(CommunicatorEntry, last_enq_ns),
    MYCROFT_FIELD(CommunicatorEntry, p2p_started),
    MYCROFT_FIELD(CommunicatorEntry, name),
    MYCROFT_FIELD(CommunicatorEntry, backend),
    MYCROFT_FIELD(CommunicatorEntry, reserved),
    MYCROFT_FIELD(FileHeader, magic),
    MYCROFT_FIELD(FileHeader, version),
    MYCROFT_FIELD(FileHeader, header_bytes),
    MYCROFT_FIELD(FileHeader, record_bytes),
    MYCROFT_FIELD(FileHeader, entry_bytes),
    MYCROFT_FIELD(FileHeader, directory_entries),
    MYCROFT_FIELD(FileHeader, clock),
    MYCROFT_FIELD(FileHeader, directory_offset),
    MYCROFT_FIELD(FileHeader, ring_offset),
    MYCROFT_FIELD(FileHeader, ring_records),
    MYCROFT_FIELD(FileHeader, created_ns),
    MYCROFT_FIELD(FileHeader, writer),
    MYCROFT_FIELD(FileHeader, head),
    MYCROFT_FIELD(FileHeader, lost),
    MYCROFT_FIELD(FileHeader, ticks),
    MYCROFT_FIELD(FileHeader, tick_ns),
    MYCROFT_FIELD(FileHeader, state),
    MYCROFT_FIELD(FileHeader, interval_ms),
    MYCROFT_FIELD(FileHeader, enabled),
    MYCROFT_FIELD(FileHeader, events),
    MYCROFT_FIELD(FileHeader, closed_ns),
};
#undef MYCROFT_FIELD

}  // namespace mycroft
