#include "identity.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "clock.h"
#include "compat.h"
#include "text.h"

namespace mycroft {
namespace {

constexpr const char* kRank[] = {"RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
                                 "PMI_RANK"};
constexpr const char* kWorld[] = {"WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
constexpr const char* kLocalRank[] = {"LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK",
                                      "MPI_LOCALRANKID"};
constexpr const char* kLocalWorld[] = {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE",
                                       "SLURM_NTASKS_PER_NODE", "MPI_LOCALNRANKS"};

template <uint32_t N>
const char* take(const char* const (&variables)[N], uint32_t* out) noexcept {
  const char* name = nullptr;
  return number_from_environment(variables, N, out, &name) ? name : nullptr;
}

size_t read_small(const char* path, char* out, size_t size) noexcept {
  out[0] = '\0';
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t n = read(fd, out, size - 1);
  close(fd);
  if (n <= 0) return 0;
  out[n] = '\0';
  return static_cast<size_t>(n);
}

uint64_t own_start_time() noexcept {
  char text[1024];
  if (read_small("/proc/self/stat", text, sizeof text) == 0) return 0;
  const char* at = strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) at = strchr(at + 1, ' ');
  uint64_t value = 0;
  return at != nullptr && parse_number(at + 1, &value) ? value : 0;
}

void read_boot_id(uint8_t* out) noexcept {
  char text[64];
  read_small("/proc/sys/kernel/random/boot_id", text, sizeof text);
  int nibbles = 0;
  for (const char* at = text; *at != '\0' && nibbles < 32; ++at) {
    const char c = *at;
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) continue;
    out[nibbles / 2] =
        static_cast<uint8_t>(nibbles % 2 == 0 ? digit << 4 : out[nibbles / 2] | digit);
    ++nibbles;
  }
}

// NCCL_SOCKET_IFNAME: comma separated prefixes; `^` first turns the list round, `=` asks for the
// whole name.
bool interface_wanted(const char* name, const char* filter) noexcept {
  if (filter == nullptr || *filter == '\0') return true;
  const bool exclude = *filter == '^';
  const char* at = filter + (exclude ? 1 : 0);
  const bool exact = *at == '=';
  if (exact) ++at;
  while (*at != '\0') {
    const char* end = strchr(at, ',');
    const size_t n = end != nullptr ? static_cast<size_t>(end - at) : std::strlen(at);
    const bool match =
        n > 0 && std::strncmp(name, at, n) == 0 && (!exact || std::strlen(name) == n);
    if (match) return !exclude;
    if (end == nullptr) break;
    at = end + 1;
  }
  return exclude;
}

void read_addresses(char* out, uint32_t size) noexcept {
  TextBuffer text(out, size);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return;
  const char* filter = getenv("NCCL_SOCKET_IFNAME");
  for (const ifaddrs* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr || (at->ifa_flags & IFF_UP) == 0) continue;
    if (at->ifa_addr->sa_family != AF_INET) continue;
    if ((at->ifa_flags & IFF_LOOPBACK) != 0 && filter == nullptr) continue;
    if (!interface_wanted(at->ifa_name, filter)) continue;
    char address[INET_ADDRSTRLEN];
    const auto* in = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
    if (inet_ntop(AF_INET, &in->sin_addr, address, sizeof address) == nullptr) continue;
    // Whole addresses only.
    if (text.used() + std::strlen(address) + 2 > size) break;
    if (text.used() != 0) text.add(",");
    text.add(address);
  }
  freeifaddrs(list);
}

}  // namespace

bool number_from_environment(const char* const* variables, uint32_t count, uint32_t* value,
                             const char** name) noexcept {
  for (uint32_t i = 0; i < count; ++i) {
    const char* text = getenv(variables[i]);
    uint64_t number = 0;
    const char* end = nullptr;
    // Slurm writes `8(x2)`: the digits count.
    if (text == nullptr || !parse_number(text, &number, &end) || number >= kUnknown32) continue;
    *value = static_cast<uint32_t>(number);
    *name = variables[i];
    return true;
  }
  return false;
}

uint32_t local_world_size() noexcept {
  uint32_t value = 0;
  return take(kLocalWorld, &value) != nullptr ? value : 0;
}

uint64_t random_salt() noexcept {
  uint64_t value = 0;
  if (syscall(SYS_getrandom, &value, sizeof value, 1) != static_cast<long>(sizeof value)) {
    value = Clock::monotonic_ns() * 0x9E3779B97F4A7C15u ^ static_cast<uint64_t>(getpid());
  }
  return value;
}

void read_identity(ProcessEntry* out) noexcept {
  out->pid = static_cast<uint32_t>(getpid());
  out->proc_start = own_start_time();
  out->rank = out->world_size = out->local_rank = out->local_world_size = out->device = kUnknown32;
  const char* source = take(kRank, &out->rank);
  TextBuffer(out->rank_source, sizeof out->rank_source).add(source);
  take(kWorld, &out->world_size);
  take(kLocalRank, &out->local_rank);
  take(kLocalWorld, &out->local_world_size);
  out->host[0] = '\0';
  (void)!gethostname(out->host, sizeof out->host - 1);
  out->host[sizeof out->host - 1] = '\0';
  read_addresses(out->addresses, sizeof out->addresses);
  read_boot_id(out->boot_id);
  struct stat ns;
  out->pid_namespace =
      syscall(SYS_newfstatat, AT_FDCWD, "/proc/self/ns/pid", &ns, 0) == 0 ? ns.st_ino : 0;
}

void read_device(ProcessEntry* out) noexcept {
  int device = -1;
  using GetDevice = int (*)(int*);
  using GetBusId = int (*)(char*, int, int);
  auto runtime_device = reinterpret_cast<GetDevice>(dlsym(RTLD_DEFAULT, "cudaGetDevice"));
  auto runtime_bus = reinterpret_cast<GetBusId>(dlsym(RTLD_DEFAULT, "cudaDeviceGetPCIBusId"));
  char bus[sizeof out->bus_id] = {};
  if (runtime_device != nullptr && runtime_device(&device) == 0) {
    if (runtime_bus == nullptr || runtime_bus(bus, sizeof bus, device) != 0) bus[0] = '\0';
  } else if (void* driver = dlopen("libcuda.so.1", RTLD_NOLOAD | RTLD_LAZY); driver != nullptr) {
    // cudart may be linked statically into its user; the driver is always a library.
    auto driver_device = reinterpret_cast<GetDevice>(dlsym(driver, "cuCtxGetDevice"));
    auto driver_bus = reinterpret_cast<GetBusId>(dlsym(driver, "cuDeviceGetPCIBusId"));
    if (driver_device != nullptr && driver_device(&device) == 0 && driver_bus != nullptr &&
        driver_bus(bus, sizeof bus, device) != 0) {
      bus[0] = '\0';
    }
    dlclose(driver);
  }
  if (device < 0) return;
  out->device = static_cast<uint32_t>(device);
  bus[sizeof bus - 1] = '\0';
  std::memcpy(out->bus_id, bus, sizeof bus);
}

}  // namespace mycroft
