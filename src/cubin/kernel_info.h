/*!
 * \file kernel_info.h
 * \brief What a cubin says about each of its kernels.
 */
#ifndef WARPLOOM_CUBIN_KERNEL_INFO_H_
#define WARPLOOM_CUBIN_KERNEL_INFO_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace warploom {
namespace cubin {

struct KernelInfo {
  std::string name;
  /*! \brief 32-bit registers a thread has at launch (before any setmaxnreg). */
  uint32_t registers = 0;
  /*! \brief Static shared memory in bytes, without the part that the system reserves. */
  uint64_t shared_bytes = 0;
  /*! \brief Local memory of the kernel's own frame in bytes: spills and arrays in memory. */
  uint32_t frame_bytes = 0;
  /*! \brief Local memory in bytes that the deepest call chain needs. */
  uint32_t stack_bytes = 0;
  /*! \brief Most threads of a CTA (`__launch_bounds__`); 0 where the kernel sets no bound. */
  uint64_t max_threads = 0;
  /*! \brief Named barriers in use. */
  uint32_t barriers = 0;
  /*! \brief Bytes of machine code, padding included. */
  uint64_t code_bytes = 0;

  /*! \brief Machine instructions; each has 128 bits since sm_70. */
  uint64_t instructions() const { return code_bytes / 16; }
};

/*!
 * \brief Reads every kernel of a cubin, in the order of its symbol table.
 * \throw CubinError if the image is not a cubin or is damaged.
 */
std::vector<KernelInfo> ReadKernels(std::string_view image);

}  // namespace cubin
}  // namespace warploom

#endif  // WARPLOOM_CUBIN_KERNEL_INFO_H_
