// Every op's room, for the entry: one line per op family.
#pragma once

#include "ops/rms_norm.h"
#include "ops/rope.h"
#include "ops/rope_tables.h"
