// Which of the asynchronous copies an instruction "cp" is.

#include "emulator/exec/isa/movement/copy_form.h"
#include "emulator/exec/isa/movement/families.h"

namespace warploom::emulator {
namespace {

void decode_cp(Decoder& decoder) {
  bool reduces = decoder.modifiers.take("reduce");
  if (!decoder.modifiers.take("async")) decoder.fail("it is not supported");
  if (!decoder.modifiers.take("bulk")) {
    decode_copy_async(decoder);
  } else if (decoder.modifiers.take("tensor")) {
    decode_tensor_copy(decoder, reduces);
  } else {
    decode_bulk_copy(decoder, reduces);
  }
}

}  // namespace

void add_copy_ops(DecodeTable& table) { table["cp"] = decode_cp; }

}  // namespace warploom::emulator
