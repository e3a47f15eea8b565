import svelte from "eslint-plugin-svelte";
import ts from "typescript-eslint";

export default ts.config(
  { ignores: ["node_modules", "src/lib/api.gen.ts"] },
  ...ts.configs.strict,
  ...svelte.configs["flat/recommended"],
  {
    files: ["**/*.svelte", "**/*.svelte.ts"],
    languageOptions: { parserOptions: { parser: ts.parser } },
    rules: { "svelte/no-at-html-tags": "error", "svelte/no-navigation-without-resolve": "off", "svelte/prefer-svelte-reactivity": "off" },
  },
);
