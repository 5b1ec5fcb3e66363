// mycroft_read_dump FILE...: reads dumps and says one line about each. For sanitizers and fuzzing
// by hand.
#include <cstdio>
#include <string>
#include <vector>

#include "read_dumps.h"

int main(int argc, char** argv) {
  std::vector<std::string> paths(argv + 1, argv + argc);
  mycroft::Pool pool;
  std::vector<mycroft::Dump> dumps = mycroft::read_dumps(paths, 2, std::size_t{1} << 30, pool);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const mycroft::DumpInfo& info = dumps[i].info;
    std::printf("%s: %zu entries, version %s, %s%s\n", paths[i].c_str(), info.entries,
                info.version.c_str(), info.error.empty() ? "read" : info.error.c_str(),
                info.damage.empty() ? "" : (", cut short: " + info.damage).c_str());
  }
}
