#include "textflag.h"

// func prefetch(p uintptr)
TEXT ·prefetch(SB), NOSPLIT, $0-8
	MOVD p+0(FP), R0
	PRFM (R0), PLDL1KEEP
	RET

// func prefetchOwn(p, q uintptr)
TEXT ·prefetchOwn(SB), NOSPLIT, $0-16
	MOVD p+0(FP), R0
	MOVD q+8(FP), R1
	PRFM (R0), PSTL1KEEP
	PRFM (R1), PSTL1KEEP
	RET
