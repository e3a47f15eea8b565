/** How the caller is known to the server: `token` if it asks for one. */
export const caller = $state({ token: false });
