// Package ablation makes the product's policies with further options, for comparisons: rules that the papers leave open,
// parts that can be switched off, and sweeps that estimate badly or lie. Each function reads the options of a policy's
// Variant and then those of the policy itself. With the default options the policies are those of the product.
package ablation
