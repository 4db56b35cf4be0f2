"""The pure node in a discrete-event simulation: many tenants, days of virtual time; no process, clock or sleep."""
