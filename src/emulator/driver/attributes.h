// What programs may ask about devices.

#ifndef WARPLOOM_EMULATOR_DRIVER_ATTRIBUTES_H_
#define WARPLOOM_EMULATOR_DRIVER_ATTRIBUTES_H_

#include <optional>

#include "emulator/base/device.h"

namespace warploom::emulator {

// The value of a CUdevice_attribute, which has the number of the cudaDeviceAttr. 0 for what the
// emulator does not have, such as textures; nothing if there is no such attribute.
std::optional<int> device_attribute(const Device& device, int attribute);

}  // namespace warploom::emulator

#endif  // WARPLOOM_EMULATOR_DRIVER_ATTRIBUTES_H_
