"""The C side of Gemini: the preloaded library, its pure core, the simulated driver, and where their builds lie."""
