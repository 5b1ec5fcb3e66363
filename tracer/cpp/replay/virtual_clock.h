// A clock that the script moves. When it is on, `clock_gettime` of the whole process, the plugin's
// included, reads it: the driver's own definition of that symbol comes before the C library's. So
// every time in a replayed trace is known beforehand, and twenty seconds of standing still cost
// nothing.
#pragma once

#include <cstdint>

namespace mycroft::replay {

// From now on time stands still at `start_ns` unless it is moved.
void use_virtual_clock(uint64_t start_ns);
bool clock_is_virtual();
// Moves the clock, if it is virtual. At least a microsecond, so that a pair of readings shows it.
void advance_clock(uint64_t ns);
// Now, by whichever clock is in use; UTC ns.
uint64_t clock_now();

}  // namespace mycroft::replay
