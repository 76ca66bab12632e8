"""Headers as typed columns: the contract, the typing rules, assembly into record batches, the header table. No I/O."""
