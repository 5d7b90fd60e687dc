#include "cpu/backend.h"
