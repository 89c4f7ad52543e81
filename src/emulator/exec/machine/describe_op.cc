#include "emulator/exec/machine/describe_op.h"

#include "emulator/base/fault.h"

namespace warploom::emulator {

std::string describe_op(const Program& program, const Op& op) {
  std::string origin = ptx::describe_origin(*program.module, *op.source);
  if (!origin.empty()) origin = " (" + origin + ")";
  return format("PTX line %d%s: %s", op.source->line, origin.c_str(), op.source->text.c_str());
}

}  // namespace warploom::emulator
