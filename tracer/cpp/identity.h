// Who this process is: host, addresses, pid, ranks, device. Read once, outside of every record
// path.
#pragma once

#include "record.h"

namespace mycroft {

// Fills everything but word0, started_ns and salt. What cannot be had stays unknown (all ones, or
// "").
void read_identity(ProcessEntry* out) noexcept;

// Fills device and bus_id if a CUDA context is current on this thread and a CUDA library is already
// in the process; loads nothing. Only to be called from NCCL's init.
void read_device(ProcessEntry* out) noexcept;

// Number in the first of these variables that holds one; `name` gets the variable.
bool number_from_environment(const char* const* variables, uint32_t count, uint32_t* value,
                             const char** name) noexcept;

// Ranks on this host, as the launcher says; 0 if it does not.
uint32_t local_world_size() noexcept;

// Random 64 bits from the kernel (time and pid where that fails).
uint64_t random_salt() noexcept;

}  // namespace mycroft
