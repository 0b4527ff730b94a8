// What a session answers. It is fed by guests, so nothing of it is believed before it was looked at here.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "memory/base/status.h"

namespace bandsaw {

// EPROTO: a field that vgpud knows is of another kind than it should be, or the whole is deeper or larger than any
// answer, or a text has control characters. What passes can be read, kept and handed on to administrators. Fields that
// vgpud does not know may be there: sessions of another release have them.
Status check_reply(const nlohmann::json& reply);

}  // namespace bandsaw
