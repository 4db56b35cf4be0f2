"""Which cards a pod gets. Pure: no I/O, no clock, no Kubernetes; numbers in, a choice or its refusal out."""
