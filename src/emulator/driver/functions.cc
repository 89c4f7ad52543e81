#include "emulator/driver/functions.h"

#include "emulator/driver/cuda_abi.h"

// Their types are not needed here: programs know them.
extern "C" {
#define SERVED(name, symbol, since) int symbol();
#define REFUSED(name, symbol, since) int symbol();
#include "emulator/driver/function_table.h"
#undef SERVED
#undef REFUSED
}

namespace warploom::emulator {
namespace {

struct Row {
  std::string_view name;
  int (*function)();
  int since;
};

constexpr Row kRows[] = {
#define SERVED(name, symbol, since) {#name, symbol, since},
#define REFUSED(name, symbol, since) {#name, symbol, since},
#include "emulator/driver/function_table.h"
#undef SERVED
#undef REFUSED
};

}  // namespace

FoundFunction find_function(std::string_view name, int version) {
  FoundFunction found;
  int newest = 0;
  for (const Row& row : kRows) {
    if (row.name != name) continue;
    found.is_known = true;
    if (row.since > version || row.since < newest) continue;
    newest = row.since;
    found.address = reinterpret_cast<void*>(row.function);
  }
  return found;
}

}  // namespace warploom::emulator
