/*!
 * \file kernel_info.cc
 * \brief Reads the .nv.info attributes, code and shared-memory sections of a cubin.
 *
 * The attributes are not documented; nvdisasm prints their names (EIATTR_*), and the tests compare
 * every field with what ptxas -v prints.
 */
#include "kernel_info.h"

#include <map>
#include <utility>

#include "elf_view.h"

namespace warploom {
namespace cubin {

namespace {

constexpr uint16_t kMachineCuda = 190;
constexpr uint8_t kSymbolFunction = 2;     // STT_FUNC
constexpr uint8_t kSymbolEntry = 0x10;     // STO_CUDA_ENTRY
// A kernel of sm_90 or later that uses shared memory starts with this many bytes of the system's;
// the symbol below marks such a cubin.
constexpr uint64_t kReservedShared = 1024;
constexpr std::string_view kReservedSharedSymbol = ".nv.reservedSmem.offset0";

enum Attribute : uint8_t {
  kMaxThreads = 0x05,      // EIATTR_MAX_THREADS: x, y, z
  kRequiredThreads = 0x10, // EIATTR_REQNTID: x, y, z
  kFrameSize = 0x11,       // EIATTR_FRAME_SIZE: symbol, bytes
  kMinStackSize = 0x12,    // EIATTR_MIN_STACK_SIZE: symbol, bytes
  kRegisterCount = 0x2f,   // EIATTR_REGCOUNT: symbol, registers
  kBarrierCount = 0x4c,    // EIATTR_NUM_BARRIERS: one byte
};

/*! \brief Calls visit(attribute, payload) for each record of an .nv.info section. */
template <typename Visit>
void ForEachAttribute(const Bytes& info, Visit visit) {
  // A record is {format, attribute, 2 bytes}; in format 4 the two bytes are the size of a payload
  // that follows, in the others they are the value itself.
  constexpr uint8_t kSized = 4;
  uint64_t at = 0;
  while (at < info.size()) {
    uint8_t format = info.Read<uint8_t>(at);
    uint8_t attribute = info.Read<uint8_t>(at + 1);
    uint64_t size = format == kSized ? info.Read<uint16_t>(at + 2) : 0;
    Bytes payload = format == kSized ? info.Slice(at + 4, size, info.name())
                                     : info.Slice(at + 2, 2, info.name());
    visit(attribute, payload);
    at += 4 + size;
  }
}

/*! \brief symbol index -> value, for each attribute of the module-wide section. */
std::map<uint8_t, std::map<uint32_t, uint32_t>> ReadModuleAttributes(const ElfView& elf) {
  std::map<uint8_t, std::map<uint32_t, uint32_t>> values;
  if (const Section* info = elf.Find(".nv.info")) {
    ForEachAttribute(elf.Content(*info), [&](uint8_t attribute, const Bytes& payload) {
      if (attribute == kRegisterCount || attribute == kFrameSize || attribute == kMinStackSize) {
        values[attribute][payload.Read<uint32_t>(0)] = payload.Read<uint32_t>(4);
      }
    });
  }
  return values;
}

void ReadKernelAttributes(const ElfView& elf, KernelInfo* kernel) {
  const Section* info = elf.Find(".nv.info." + kernel->name);
  if (info == nullptr) return;
  ForEachAttribute(elf.Content(*info), [&](uint8_t attribute, const Bytes& payload) {
    if (attribute == kBarrierCount) kernel->barriers = payload.Read<uint8_t>(0);
    if (attribute == kMaxThreads || attribute == kRequiredThreads) {
      kernel->max_threads = uint64_t{payload.Read<uint32_t>(0)} * payload.Read<uint32_t>(4) *
                            payload.Read<uint32_t>(8);
    }
  });
}

bool HasReservedShared(const ElfView& elf) {
  for (const Symbol& symbol : elf.symbols()) {
    if (symbol.name == kReservedSharedSymbol) return true;
  }
  return false;
}

}  // namespace

std::vector<KernelInfo> ReadKernels(std::string_view image) {
  ElfView elf(image);
  if (elf.image().Read<uint16_t>(18) != kMachineCuda) {
    throw CubinError("malformed cubin: the ELF image is not for the CUDA machine (190).");
  }
  auto module = ReadModuleAttributes(elf);
  uint64_t reserved = HasReservedShared(elf) ? kReservedShared : 0;

  std::vector<KernelInfo> kernels;
  for (uint32_t index = 0; index < elf.symbols().size(); ++index) {
    const Symbol& symbol = elf.symbols()[index];
    if (symbol.type != kSymbolFunction || !(symbol.other & kSymbolEntry)) continue;
    std::string printable = Printable(symbol.name);
    if (symbol.name.empty() || printable != symbol.name) {
      throw CubinError("malformed cubin: the kernel name '" + printable + "' is not a C name.");
    }
    if (symbol.section >= elf.sections().size()) {
      throw CubinError("malformed cubin: kernel " + printable + " has no code section.");
    }
    if (!module[kRegisterCount].count(index)) {
      throw CubinError("malformed cubin: kernel " + printable + " has no register count.");
    }
    KernelInfo kernel;
    kernel.name = printable;
    kernel.registers = module[kRegisterCount][index];
    kernel.frame_bytes = module[kFrameSize][index];
    kernel.stack_bytes = module[kMinStackSize][index];
    kernel.code_bytes = elf.Content(elf.sections()[symbol.section]).size();
    ReadKernelAttributes(elf, &kernel);
    if (const Section* shared = elf.Find(".nv.shared." + kernel.name)) {
      kernel.shared_bytes = shared->size > reserved ? shared->size - reserved : 0;
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

}  // namespace cubin
}  // namespace warploom
