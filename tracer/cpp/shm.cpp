#include "shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "clock.h"
#include "compat.h"
#include "text.h"

namespace mycroft {
namespace {

constexpr uint64_t kSmallestFile = uint64_t{1} << 20;
constexpr char kSuffix[] = ".ring";
constexpr uint32_t kMostFiles = 4096;  // looked at when counting the budget

// stat and its kin have new symbol versions since glibc 2.33, so we ask the kernel, whose structure
// is the one of <sys/stat.h> on 64-bit machines.
int stat_at(int dir, const char* name, struct stat* out) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, dir, name, out, AT_SYMLINK_NOFOLLOW));
}

int stat_fd(int fd, struct stat* out) noexcept {
  return static_cast<int>(syscall(SYS_newfstatat, fd, "", out, AT_EMPTY_PATH));
}

struct OldFile {
  char name[160];
  uint64_t bytes;
  uint64_t changed_ns;
  bool reclaimable;
  bool closed;
};

// Start time of a process in clock ticks since boot, 0 if it does not exist.
uint64_t process_start(uint32_t pid) noexcept {
  char path[64];
  TextBuffer(path, sizeof path).add("/proc/").add(uint64_t{pid}).add("/stat");
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[1024];
  const ssize_t n = read(fd, text, sizeof text - 1);
  ::close(fd);
  if (n <= 0) return 0;
  text[n] = '\0';
  // The command in parentheses may hold anything, also parentheses and spaces.
  const char* at = strrchr(text, ')');
  for (int field = 2; at != nullptr && field < 22; ++field) {
    at = strchr(at + 1, ' ');
  }
  uint64_t value = 0;
  return at != nullptr && parse_number(at + 1, &value) ? value : 0;
}

// Looks at one file of the directory; false if it is none of ours.
bool inspect(int dir, const char* name, OldFile* out) noexcept {
  if (!text_ends(name, kSuffix) || std::strlen(name) >= sizeof out->name) return false;
  struct stat st;
  if (stat_at(dir, name, &st) != 0 || (st.st_mode & 0170000) != 0100000) return false;
  const int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  alignas(64) FileHeader header{};
  ProcessEntry process{};
  const bool whole =
      pread(fd, &header, sizeof header, 0) == static_cast<ssize_t>(sizeof header) &&
      pread(fd, &process, sizeof process, kHeaderBytes) == static_cast<ssize_t>(sizeof process);
  ::close(fd);
  if (!whole || std::memcmp(header.magic, kMagic, sizeof kMagic) != 0) return false;
  TextBuffer(out->name, sizeof out->name).add(name);
  out->bytes = static_cast<uint64_t>(st.st_blocks) * 512;
  out->changed_ns = static_cast<uint64_t>(st.st_mtime) * 1000000000u;
  out->closed =
      header.version == kLayoutVersion && header.state == static_cast<uint32_t>(FileState::closed);
  // Alive: the same pid with the same start time. Another pid namespace cannot be judged: not
  // reclaimed unless it ended in order.
  struct stat ns;
  const uint64_t my_ns =
      stat_at(AT_FDCWD, "/proc/self/ns/pid", &ns) == 0 ? static_cast<uint64_t>(ns.st_ino) : 0;
  const bool same_namespace = process.pid_namespace == my_ns;
  const bool alive = same_namespace && process.pid != 0 &&
                     process_start(process.pid) == process.proc_start && process.proc_start != 0;
  out->reclaimable = out->closed ? !alive : (same_namespace && !alive);
  return true;
}

// Sum of the files in the directory. Removes ended ones, those closed in order first and then the
// oldest, until `want` more bytes fit under `budget` or nothing is left to remove.
uint64_t make_room(int dir, uint64_t budget, uint64_t want) noexcept {
  for (uint32_t round = 0; round < kMostFiles; ++round) {
    const int copy = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* listing = copy >= 0 ? fdopendir(copy) : nullptr;
    if (listing == nullptr) {
      if (copy >= 0) ::close(copy);
      return 0;
    }
    uint64_t used = 0;
    bool found = false;
    OldFile victim{};
    uint32_t seen = 0;
    while (dirent* entry = readdir(listing)) {
      OldFile file{};
      if (++seen > kMostFiles) break;
      if (!inspect(dir, entry->d_name, &file)) continue;
      used += file.bytes;
      if (!file.reclaimable) continue;
      if (!found || (file.closed && !victim.closed) ||
          (file.closed == victim.closed && file.changed_ns < victim.changed_ns)) {
        victim = file;
        found = true;
      }
    }
    closedir(listing);
    if (used + want <= budget || !found) return used;
    if (unlinkat(dir, victim.name, 0) != 0) return used;
  }
  return budget;
}

int open_directory(const char* path, char* why, uint32_t why_bytes) noexcept {
  if (mkdir(path, 0700) != 0 && errno != EEXIST) {
    TextBuffer(why, why_bytes).add(path).add(": cannot be created, error ").add(uint64_t(errno));
    return -1;
  }
  const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  struct stat st;
  if (fd < 0 || stat_fd(fd, &st) != 0) {
    TextBuffer(why, why_bytes).add(path).add(": not a directory we can open");
    if (fd >= 0) ::close(fd);
    return -1;
  }
  if (st.st_uid != geteuid()) {
    TextBuffer(why, why_bytes).add(path).add(": belongs to another user");
    ::close(fd);
    return -1;
  }
  return fd;
}

bool reserve(int fd, uint64_t bytes) noexcept {
  if (syscall(SYS_fallocate, fd, 0, off_t{0}, static_cast<off_t>(bytes)) == 0) return true;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return false;
  // A file system without fallocate: write the blocks.
  static const char zeros[1 << 16] = {};
  for (uint64_t at = 0; at < bytes;) {
    const uint64_t left = bytes - at;
    const ssize_t n =
        pwrite(fd, zeros, left < sizeof zeros ? left : sizeof zeros, static_cast<off_t>(at));
    if (n <= 0) return false;
    at += static_cast<uint64_t>(n);
  }
  return true;
}

uint64_t ring_offset() noexcept { return kHeaderBytes + uint64_t{kDirectoryEntries} * kEntryBytes; }

}  // namespace

uint64_t* TraceFile::directory() const noexcept {
  return reinterpret_cast<uint64_t*>(static_cast<char*>(base_) + kHeaderBytes);
}

uint64_t* TraceFile::ring() const noexcept {
  return reinterpret_cast<uint64_t*>(static_cast<char*>(base_) + ring_offset());
}

bool TraceFile::create(const ShmOptions& options, char* why, uint32_t why_bytes) noexcept {
  char directory[256];
  TextBuffer name(directory, sizeof directory);
  if (options.directory != nullptr && options.directory[0] != '\0') {
    name.add(options.directory);
  } else {
    name.add("/dev/shm/mycroft-").add(uint64_t{geteuid()});
  }
  if (name.cut()) {
    TextBuffer(why, why_bytes).add("the name of the trace directory is too long");
    return false;
  }
  const int dir = open_directory(directory, why, why_bytes);
  if (dir < 0) return false;
  // Processes of one host start together: one at a time counts the budget. Never wait for long: a
  // lock that somebody keeps must not delay the job.
  bool locked = false;
  for (int i = 0; i < 200 && !locked; ++i) {
    locked = flock(dir, LOCK_EX | LOCK_NB) == 0;
    if (!locked) usleep(1000);
  }

  const uint32_t processes = options.processes > 8 ? options.processes : 8;
  uint64_t want = options.file_bytes != 0 ? options.file_bytes : options.budget_bytes / processes;
  if (want < kSmallestFile) want = kSmallestFile;
  const uint64_t used = make_room(dir, options.budget_bytes, want);
  const uint64_t left = options.budget_bytes > used ? options.budget_bytes - used : 0;
  if (want > left) want = left;
  want &= ~uint64_t{4095};

  int fd = -1;
  char file[192];
  if (want >= kSmallestFile) {
    for (uint64_t attempt = 0; attempt < 16 && fd < 0; ++attempt) {
      TextBuffer(file, sizeof file)
          .add(options.label != nullptr ? options.label : "pid")
          .add("-")
          .add(static_cast<uint64_t>(getpid()))
          .add("-")
          .add(Clock::realtime_ns() + attempt, 16)
          .add(kSuffix);
      fd = openat(dir, file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
      if (fd < 0 && errno != EEXIST) break;
    }
  }
  // A full file system: try smaller before giving up.
  bool reserved = false;
  while (fd >= 0 && !reserved && want >= kSmallestFile) {
    reserved = reserve(fd, want);
    if (!reserved) {
      (void)!ftruncate(fd, 0);
      want = (want / 2) & ~uint64_t{4095};
    }
  }
  if (reserved) (void)!ftruncate(fd, static_cast<off_t>(want));
  void* base = MAP_FAILED;
  if (reserved) {
    base = mmap(nullptr, want, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  }
  if (base == MAP_FAILED) {
    TextBuffer text(why, why_bytes);
    text.add(directory);
    if (fd < 0 && want < kSmallestFile) {
      text.add(": the budget of ")
          .add(options.budget_bytes >> 20)
          .add(" MB is used up by processes that are alive; raise MYCROFT_BUDGET_MB");
    } else if (fd < 0) {
      text.add(": a file cannot be created there, error ").add(uint64_t(errno));
    } else {
      text.add(": no room for a trace of 1 MB; free some, or set MYCROFT_DIR");
    }
    if (fd >= 0) {
      ::close(fd);
      unlinkat(dir, file, 0);
    }
    ::close(dir);
    return false;
  }
  ::close(fd);
  ::close(dir);  // drops the lock

  base_ = base;
  bytes_ = want;
  records_ = (want - ring_offset()) / kRecordBytes;
  TextBuffer(path_, sizeof path_).add(directory).add("/").add(file);

  FileHeader* h = header();
  h->header_bytes = kHeaderBytes;
  h->record_bytes = kRecordBytes;
  h->entry_bytes = kEntryBytes;
  h->directory_entries = kDirectoryEntries;
  h->directory_offset = kHeaderBytes;
  h->ring_offset = ring_offset();
  h->ring_records = records_;
  h->created_ns = Clock::realtime_ns();
  std::memcpy(h->writer, kWriterName, sizeof kWriterName);
  std::atomic_ref<uint32_t>(h->state).store(static_cast<uint32_t>(FileState::open),
                                            std::memory_order_relaxed);
  h->version = kLayoutVersion;
  std::atomic_thread_fence(std::memory_order_release);  // a file with the magic has a whole header
  std::memcpy(h->magic, kMagic, sizeof kMagic);
  return true;
}

void TraceFile::close(uint64_t now_ns) noexcept {
  if (base_ == nullptr) return;
  FileHeader* h = header();
  std::atomic_ref<uint64_t>(h->closed_ns).store(now_ns, std::memory_order_relaxed);
  std::atomic_ref<uint32_t>(h->state).store(static_cast<uint32_t>(FileState::closed),
                                            std::memory_order_release);
}

TraceFile::~TraceFile() {
  if (base_ != nullptr) munmap(base_, bytes_);
}

}  // namespace mycroft
