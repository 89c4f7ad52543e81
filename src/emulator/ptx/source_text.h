// The lines of generated CUDA source that come with PTX, as comments behind it:
//
//   //@cuda 37 tvm_builtin_cuda_mbarrier_wait(...);
//   //@script 37 gemm.py:7 full.wait(0, k % 2)
//
// python/warploom/emulator/script_lines.py writes them.

#ifndef WARPLOOM_EMULATOR_PTX_SOURCE_TEXT_H_
#define WARPLOOM_EMULATOR_PTX_SOURCE_TEXT_H_

#include <string>
#include <string_view>

#include "emulator/ptx/module.h"

namespace warploom::emulator::ptx {

// Fills module.source; comments of another form are none of these.
void read_source_text(std::string_view ptx, Module& module);

// The text of a line of the generated source, nullptr if it is not known or of another file.
const SourceText* find_source_text(const Module& module, SourceLine line);

}  // namespace warploom::emulator::ptx

#endif  // WARPLOOM_EMULATOR_PTX_SOURCE_TEXT_H_
