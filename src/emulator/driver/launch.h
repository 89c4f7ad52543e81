// Launches as programs ask for them, for streams and graphs.

#ifndef WARPLOOM_EMULATOR_DRIVER_LAUNCH_H_
#define WARPLOOM_EMULATOR_DRIVER_LAUNCH_H_

#include "emulator/driver/cuda_abi.h"
#include "emulator/driver/graph.h"
#include "emulator/exec/launch/kernel_run.h"

namespace warploom::emulator {

// A kernel's arguments: a pointer to each, or CU_LAUNCH_PARAM_* with one buffer for all.
struct LaunchArguments {
  void** each;
  void** buffer;
};

// At once, or as a node of the graph that the stream captures into. `function` may be a kernel of a
// library. A CUresult.
int submit_launch(void* function, LaunchRequest request, const LaunchArguments& arguments);

// What launches with the arguments as they are now; a Fault if they are not complete.
Work launch_work(void* function, LaunchRequest request, const LaunchArguments& arguments);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_LAUNCH_H_
