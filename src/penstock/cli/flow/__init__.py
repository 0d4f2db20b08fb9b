"""Commands about flows: check, plan, run, flow, state, epochs, fates, why, ingest."""
